"""``python -m soft_reasoning.run`` is ``soft-reasoning run``."""

import sys

from soft_reasoning.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "run")
    main()
