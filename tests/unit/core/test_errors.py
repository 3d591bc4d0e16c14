import pytest

from core.errors import SparringError, exit_with


def test_a_command_ends_with_one_line_the_error_and_its_notes(capsys) -> None:
    error = SparringError("a.json: no such file")
    error.add_note("the checkpoints are in output/run; continue with --resume")
    with pytest.raises(SystemExit) as ended:
        exit_with(error)
    assert ended.value.code == 2
    said = "error: a.json: no such file; the checkpoints are in output/run; continue with --resume\n"
    assert capsys.readouterr() == ("", said)


def test_of_the_systems_errors_the_file_and_the_reason_are_told(tmp_path, capsys) -> None:
    with pytest.raises(OSError) as missing:
        (tmp_path / "none").read_text()
    with pytest.raises(SystemExit):
        exit_with(missing.value)
    assert capsys.readouterr().err == f"error: {tmp_path}/none: No such file or directory\n"
