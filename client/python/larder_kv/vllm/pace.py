"""How fast this engine computes and pulls, measured, so that nothing is pulled that is computed sooner."""

from __future__ import annotations

from collections.abc import Callable

STEP_TOKENS_MIN = 64  # a shorter step says nothing about prefill
PATIENCE = 1.5  # a load may take this much longer than computing the same before it is given up
WORTH_MS_MIN = 200.0  # a shorter load is not worth a thought
LOAD_MS_MIN = 1000.0  # nothing is given up sooner: the client itself takes that long to find a node dead


class Pace:
    """Moving means. Times are arguments, in milliseconds."""

    def __init__(self) -> None:
        self._compute_ms = 0.0  # a token
        self._load_ms = 0.0  # a token

    @staticmethod
    def _mean(old: float, new: float) -> float:
        return new if old == 0 else 0.7 * old + 0.3 * new

    def computed(self, tokens: int, took_ms: float) -> None:
        if tokens >= STEP_TOKENS_MIN and took_ms > 0:
            self._compute_ms = self._mean(self._compute_ms, took_ms / tokens)

    def loaded(self, tokens: int, took_ms: float) -> None:
        if tokens > 0 and took_ms > 0:
            self._load_ms = self._mean(self._load_ms, took_ms / tokens)

    def compute_ms(self, tokens: int) -> float:
        """0: not known yet."""
        return self._compute_ms * tokens

    def worth_loading(self, tokens: int) -> bool:
        """Unknown speeds are worth finding out. Attention makes late tokens dearer than this mean: it errs on the side of
        computing by little."""
        if self._compute_ms == 0 or self._load_ms == 0 or self._load_ms * tokens < WORTH_MS_MIN:
            return True
        if self._load_ms < self._compute_ms:
            return True
        self._load_ms *= 0.95  # forget, so that a cluster that got faster is tried again
        return False

    def tokens_in_time(self, local: int, tokens: int, chunk_tokens: int, load_ms: Callable[[int], float]) -> int:
        """Of a prefix of `tokens`, `local` of them here already, the most that are pulled sooner than computed; load_ms
        tells when a chunk will have come, 0 for unknown. All of them as long as computing is not measured."""
        if self._compute_ms == 0:
            return tokens
        latest, in_time = 0.0, local
        for chunk in range(local // chunk_tokens, -(-tokens // chunk_tokens)):
            latest = max(latest, load_ms(chunk))
            end = min(tokens, (chunk + 1) * chunk_tokens)
            if latest <= self.compute_ms(end - local):
                in_time = end
        return in_time

    def deadline_ms(self, tokens: int, most_ms: float) -> float:
        """How long a load of so many tokens may take."""
        if self._compute_ms == 0:
            return most_ms
        return min(most_ms, max(LOAD_MS_MIN, PATIENCE * self.compute_ms(tokens)))
