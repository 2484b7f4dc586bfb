"""One file per family of operators; each is found by being here."""
