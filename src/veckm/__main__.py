"""``python -m veckm`` is the command ``veckm``."""

from veckm.cli import main

raise SystemExit(main())
