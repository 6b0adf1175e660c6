"""Files and folders are replaced in one step."""

import pytest

from domainwise.base.files import replacing_folder, write_text


@pytest.mark.parametrize("letters", ["a" * 249, "é" * 124 + "x"])
def test_names_of_files_may_be_as_long_as_the_system_allows(letters, tmp_path):
    path = tmp_path / (letters + ".model")
    write_text(path, "text")
    write_text(path, "new text")
    assert path.read_text() == "new text"
    with replacing_folder(tmp_path / letters) as folder:
        write_text(folder / "inside", "text")
    assert sorted(tmp_path.iterdir()) == sorted([path, tmp_path / letters])
