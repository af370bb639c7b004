"""Write a tiny random model as a GGUF file: ``tiny_gguf.py PATH``, run by an interpreter with the ``gguf`` package.

The words depend on a fixed seed, the answer on the prompt. An answer is one sentence of 20 to 40 words that starts with
a capital letter. The model ends only after the full stop, so a reader can tell whether an answer is complete. If the
end is forbidden (the server's ``min_tokens``), more words follow.

The model steps through STAGES. Each stage has a dimension in which its words are embedded, and to which the words of
the next two stages respond. Two small layers of noise make some words more likely, depending on the text before.
"""

import sys
from pathlib import Path
from typing import Any

import numpy
from gguf import GGUFWriter, TokenType

STAGES, WORDS = 40, 6  # words of each stage
WIDTH = 64
HEADS = 4
LAYERS = 2
HIDDEN = 128
WINDOW = 2048
CLOSING, OTHER = (
    STAGES + 1,
    STAGES + 2,
)  # the dimensions after a full stop, and of tokens that are not words
LIKELY, POSSIBLE = (
    20,
    12,
)  # how strongly a token responds to a dimension; the second counts if all likely tokens are forbidden
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}<|end|>{% endfor %}<|assistant|>"
)


class Vocabulary:
    """Bytes, syllables, words of two syllables (joined by byte-pair encoding), and special tokens."""

    def __init__(self, dice: numpy.random.Generator) -> None:
        printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
        self.tokens = [chr(byte) for byte in printed] + [
            chr(256 + at) for at in range(256 - len(printed))
        ]
        self.merges: list[str] = []
        space = "\u0120"  # GPT-2's symbol for a space
        syllables = [
            self._joined(consonant, vowel) for consonant in "bdfgklmnprstvz" for vowel in "aeiou"
        ]
        first_syllables = {
            True: {},
            False: {},
        }  # whether it starts an answer: syllable -> the token at a word's start
        for syllable in syllables:
            first_syllables[True][syllable] = self._joined(syllable[0].upper(), syllable[1])
            first_syllables[False][syllable] = self._joined(space, syllable)
        chosen = iter(dice.choice(len(syllables) ** 2, STAGES * WORDS, replace=False).tolist())
        self.stages: list[list[int]] = [
            []
        ]  # the word tokens of each stage; stage 0 is before the first word
        for stage in range(1, STAGES + 1):
            self.stages.append([])
            for _ in range(WORDS):
                first, second = (syllables[at] for at in divmod(next(chosen), len(syllables)))
                self.stages[stage].append(len(self.tokens))
                self._joined(first_syllables[stage == 1][first], second)
        self.tokens += SPECIAL

    def _joined(self, left: str, right: str) -> str:
        self.merges.append(f"{left} {right}")
        self.tokens.append(left + right)
        return left + right


def ends(vocabulary: Vocabulary, dice: numpy.random.Generator) -> dict[str, Any]:
    """The embeddings of the tokens, and the output layer."""
    end, assistant, stop = map(vocabulary.tokens.index, ("<|end|>", "<|assistant|>", "."))
    entrance, exit_ = dice.normal(0, 0.1, (2, len(vocabulary.tokens), WIDTH))
    entrance[:, : OTHER + 1] = exit_[:, : OTHER + 1] = 0
    entrance[:, OTHER] = 1
    for stage, words in enumerate(vocabulary.stages):
        entrance[words, OTHER], entrance[words, stage] = 0, 1
        exit_[words, max(stage - 2, min(stage - 1, 1)) : stage] = LIKELY
    entrance[[assistant, stop], OTHER] = 0
    entrance[assistant, 0] = entrance[stop, CLOSING] = 1
    exit_[stop, STAGES - 1 : STAGES + 1] = exit_[end, CLOSING] = LIKELY
    exit_[vocabulary.stages[2], CLOSING] = POSSIBLE
    exit_[:, : OTHER + 1] /= WIDTH**0.5  # the norm layer scales an embedding to this length
    exit_[:, OTHER + 1 :] *= 5
    return {"token_embd": entrance, "output": exit_, "output_norm": numpy.ones(WIDTH)}


def layer(number: int, dice: numpy.random.Generator) -> dict[str, Any]:
    """The tensors of a layer, filled with noise."""
    square = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (WIDTH, WIDTH))
    shapes = {
        **square,
        "ffn_gate": (HIDDEN, WIDTH),
        "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }
    tensors = {name: dice.normal(0, shape[1] ** -0.5, shape) for name, shape in shapes.items()}
    for name in ("attn_output", "ffn_down"):
        tensors[name] *= 0.1  # small, compared with the input
    norms = {name: numpy.ones(WIDTH) for name in ("attn_norm", "ffn_norm")}
    return {f"blk.{number}.{name}": tensor for name, tensor in (tensors | norms).items()}


def write(path: Path) -> None:
    """Write the file."""
    dice = numpy.random.default_rng(17)
    vocabulary = Vocabulary(dice)
    file = GGUFWriter(path, "llama")
    file.add_context_length(WINDOW)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(HIDDEN)
    file.add_head_count(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(len(vocabulary.tokens))
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(vocabulary.tokens)
    file.add_token_types(
        [TokenType.CONTROL if t in SPECIAL else TokenType.NORMAL for t in vocabulary.tokens]
    )
    file.add_token_merges(vocabulary.merges)
    file.add_bos_token_id(vocabulary.tokens.index("<|end|>"))
    file.add_eos_token_id(vocabulary.tokens.index("<|end|>"))
    file.add_add_bos_token(False)
    file.add_chat_template(TEMPLATE)
    tensors = ends(vocabulary, dice)
    for number in range(LAYERS):
        tensors |= layer(number, dice)
    for name, tensor in tensors.items():
        file.add_tensor(f"{name}.weight", tensor.astype(numpy.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
