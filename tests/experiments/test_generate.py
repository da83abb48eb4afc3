"""The example that compares a deployed decoder's tokens with plain OpenVINO's."""

import pytest

from experiments.examples import generate

_PLAIN = generate.Generation([3, 1, 2], [0.02, 0.001, 0.003])


def test_equal_tokens_are_reported_with_their_times(capsys, monkeypatch):
    monkeypatch.setattr(generate, "compare", lambda *_: (_PLAIN, _PLAIN))
    generate.main("folder", "8", "3")
    lines = capsys.readouterr().out.splitlines()
    expected = "plain OpenVINO first token 20.00 ms, next tokens 2.000 ms each"
    assert " ".join(lines[1].split()) == expected
    assert lines[2] == "3 of 3 tokens are equal, 3 of them different"


def test_a_token_that_differs_ends_with_exit_code_1(capsys, monkeypatch):
    deployed = _PLAIN._replace(tokens=[3, 1, 1])
    monkeypatch.setattr(generate, "compare", lambda *_: (deployed, _PLAIN))
    with pytest.raises(SystemExit) as caught:
        generate.main("folder", "8", "3")
    assert caught.value.code == 1
    assert "2 of 3 tokens are equal" in capsys.readouterr().out
