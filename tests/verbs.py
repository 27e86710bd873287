"""The command line as tests call it."""

from veckm.cli import main


def run(capsys, *args):
    """Exit code, standard output and standard error of `veckm ...`."""
    code = main([*map(str, args)])
    return code, *capsys.readouterr()


def fails(capsys, *args):
    """The error line of a call that must fail in one line and without output."""
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith("veckm: error: ")
    assert err.count("\n") == 1
    return err
