"""`python -m ledgerstore` is the command `ledgerstore`, also where its script is not on the search path."""

from recovery.shell.main import main

if __name__ == "__main__":
    main()
