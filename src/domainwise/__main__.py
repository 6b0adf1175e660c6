"""``python -m domainwise`` is the same as ``domainwise``."""

from domainwise._entry import main

if __name__ == "__main__":
    main()
