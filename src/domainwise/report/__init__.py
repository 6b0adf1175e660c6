"""What the pages of ``evaluate`` and ``reproduce`` share: pictures, page, base template."""
