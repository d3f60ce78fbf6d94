#!/usr/bin/env python3
"""Plays seeded conversations against an OpenAI-compatible server, several at once.

    chats.py URL MODEL CHATS TURNS

Prints a JSON list of [tokens of the prompt, tokens of the answer], one for each turn of each chat. Token 17 is the word "w17".
"""

import asyncio
import json
import random
import sys

import aiohttp

ANSWER_TOKENS = 8


def words(tokens):
    return " ".join(f"w{token}" for token in tokens)


def tokens_of(text):
    return [int(word[1:]) if word.startswith("w") else {"<s>": 1, "</s>": 2}.get(word, 0) for word in text.split()]


async def chat(session, url, model, number, turns):
    dice, messages, played = random.Random(f"chat {number}"), [], []
    system = random.Random("system")  # all chats begin with the same
    messages.append({"role": "system", "content": words(system.randrange(3, 500) for _ in range(150))})
    for _ in range(turns):
        messages.append({"role": "user", "content": words(dice.randrange(3, 500) for _ in range(dice.randint(30, 90)))})
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "skip_special_tokens": False,
            "add_special_tokens": False,
        }
        async with session.post(url + "/v1/chat/completions", json=body) as answer:
            content = await answer.json()
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {content}")
        text = content["choices"][0]["message"]["content"]
        prompt = [token for message in messages for token in tokens_of(message["content"])]
        played.append([prompt, tokens_of(text)])
        messages.append({"role": "assistant", "content": text})
    return played


async def main(url, model, chats, turns):
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        played = await asyncio.gather(*[chat(session, url, model, number, turns) for number in range(chats)])
    print(json.dumps([turn for each in played for turn in each]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
