"""Whether a model can read images, PDF documents, audio or video: by its API, Ollama's report, or the model table."""

from gptsh.llm.ollama_models import OllamaModels
from gptsh.models.facts import exact_facts
from gptsh.models.vendors import Provider

_OLLAMAS_WORDS = {"vision": "vision", "function_calling": "tools", "reasoning": "thinking"}
# Abilities that no model has through these APIs: their messages cannot carry such parts.
_UNSUPPORTED: dict[str, tuple[str, ...]] = {
    "chat": ("video_input",),
    "responses": ("audio_input", "video_input"),
    "anthropic": ("audio_input", "video_input"),
    "ollama": ("pdf_input", "audio_input", "video_input"),
    "litellm": ("video_input",),
}


def has_ability(provider: Provider, ability: str, ollama: OllamaModels) -> bool | None:
    """Whether a provider's model has ``vision``, ``pdf_input``, …; None: unknown. An Ollama server is asked."""
    if ability in _UNSUPPORTED.get(provider.api, ()):
        return False
    if provider.api != "ollama":
        return exact_facts(provider.name, provider.model).can(ability)
    if ability not in _OLLAMAS_WORDS:
        return None
    reported = ollama.info(provider).get("abilities")
    return None if reported is None else _OLLAMAS_WORDS[ability] in reported
