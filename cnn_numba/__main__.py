"""``python -m cnn_numba``: the command line."""

from cnn_numba.cli import main

if __name__ == "__main__":
    main()
