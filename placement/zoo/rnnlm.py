"""A recurrent language model over words."""

import openvino as ov

from placement.zoo import recurrent


def rnnlm(
    *,
    layers: int = 2,
    steps: int = 35,
    batch: int = 64,
    hidden: int = 2048,
    vocabulary: int = 10_000,
) -> ov.Model:
    """RNNLM: words int64 [steps, batch] -> `steps` outputs float32 [batch, vocabulary].

    Jozefowicz et al. 2016, "Exploring the Limits of Language Modeling", as Mirhoseini et al. 2018
    place it: 2 LSTM layers of 2048, batch 64. The vocabulary is not theirs: 10,000 words and 35
    steps are those of Zaremba et al. 2014 on the Penn treebank. Inference only.
    1280 operations and 1866 edges, of which 241 become copies of weights. Each layer has 14 and 21
    for a step, 4 and 2 for its weights.
    """
    ids, step_words = recurrent.split_words("words", steps, batch)
    inputs = recurrent.embed_words(step_words, vocabulary, hidden)
    zeros = recurrent.zero_state(batch, hidden)
    for layer in range(layers):
        cell, state = recurrent.make_cell(f"lstm{layer}", hidden, hidden), zeros
        outputs = []
        for step, x in enumerate(inputs):
            state = recurrent.advance(cell, step, [x], state)
            outputs.append(state.output)
        inputs = outputs
    return ov.Model(recurrent.predict(inputs, vocabulary), [ids], "rnnlm")
