"""Models in the formats of others, both ways: tables of rules, one file per architecture."""
