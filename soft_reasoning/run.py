"""``python -m soft_reasoning.run`` is ``soft-reasoning run``."""

from soft_reasoning.commands.run import main

if __name__ == "__main__":
    main()
