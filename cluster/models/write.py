"""Writes a model folder, in a process of its own: it takes a gigabyte that nothing else should carry.

    python -m cluster.models.write gguf FILE FOLDER     the file's model, its weights spread out to bfloat16
    python -m cluster.models.write tiny FOLDER          the random model of `cluster.models.tiny`

bfloat16 is what vLLM's CPU kernels compute in. FOLDER exists and is empty.
"""

import sys
from pathlib import Path

from cluster.models.tiny import ensure_tiny_llama


def write_gguf(gguf: Path, folder: Path) -> None:
    """Write model and tokenizer, with the chat template, as Hugging Face files."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_tiny(folder: Path) -> None:
    """Write the tiny model; its maker wants a path that does not exist yet."""
    made = ensure_tiny_llama(folder / "making")
    for file in made.iterdir():
        file.rename(folder / file.name)
    made.rmdir()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gguf", file, folder]:
            write_gguf(Path(file), Path(folder))
        case ["tiny", folder]:
            write_tiny(Path(folder))
        case _:
            sys.exit(__doc__)
