"""Tables of users: reading, checks of columns, target and domains, statistics, writing."""
