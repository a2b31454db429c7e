"""The language of a text, by its script, its letters and its function words: some microseconds, no model.

It knows the languages of `LANGUAGES` alone. A short text, one of names and numbers, and one between two languages have
no language here; a text in a language that is not listed may be taken for a neighbour (Galician for Portuguese).
Measured by `tests/gateway/test_languages.py` on sentences that are not its words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Final

READ_CHARS: Final = 2000  # of the beginning
LEAST_WEIGHT: Final = 0.5  # a word or letter counts one over the number of languages that have it
LEAST_LEAD: Final = 1.25  # of the best language over the second
LEAST_SHARE: Final = 0.3  # of the letters, in the script that is not Latin
_FUNCTION_WORDS: Final = {
    "en": "the and of to is are was were that this it with for not you i what how do does can could would should my"
          " your from have has be been which when where there please an or by as if than then about into me we they",
    "de": "der die das und ist sind war nicht mit für ein eine einen einem einer den dem des ich du wir ihr sie es wie"
          " was wann warum kann können bitte auf zu von im am zum zur auch noch aber oder wenn dass haben hat wird mein"
          " meine dein ihre über nach bei aus um gibt mir mich uns sich",
    "fr": "le la les un une des du de et est sont était que qui quoi comment pourquoi je tu nous vous il elle ils elles"
          " ne pas pour avec dans sur au aux ce cette ces mon ma mes votre vos notre peut pouvez puis-je plus ou où si"
          " être avoir fait quel quelle j'ai c'est qu'est-ce",
    "es": "el la los las un una unos de del y es son era que qué quién cómo cuándo dónde por para con no yo tú nosotros"
          " usted ustedes mi mis su sus se lo le les en al o pero si está están puedo puede tengo hay muy más esta este"
          " estos fue ser hacer",
    "pt": "o a os as um uma uns de do da dos das e é são era que quem como quando onde por para com não eu você nós meu"
          " minha seu sua se no na nos nas ao à ou mas está estão posso pode tenho há muito mais este esta isso foi ser"
          " fazer em também qual",
    "it": "il lo la i gli le un uno una di del della dei delle e è sono era che chi come quando dove perché per con non"
          " io tu noi voi mio mia suo sua si nel nella al alla o ma se posso può ho ha c'è molto più questo questa fare"
          " essere anche quale in da",
    "nl": "de het een en is zijn was van dat die wat hoe waarom wanneer waar ik jij je wij we u niet met voor op in aan"
          " bij naar om te ook maar of als kan kunt kunnen mijn jouw uw onze heeft hebben wordt worden deze dit er meer"
          " graag moet",
    "sv": "och är det att en ett som på för inte med av jag du vi ni hur vad varför när var kan kunna min mitt mina din"
          " ditt den de har hade till från om eller men så vill ska skulle finns mer också denna detta blir mig",
    "da": "og er det at en et som på for ikke med af jeg du vi i hvordan hvad hvorfor hvornår hvor kan kunne min mit"
          " mine din den de har havde til fra om eller men så vil skal skulle findes mere også denne dette bliver mig"
          " nogle",
    "no": "og er det at en et som på for ikke med av jeg du vi dere hvordan hva hvorfor når hvor kan kunne min mitt"
          " mine din den de har hadde til fra om eller men så vil skal skulle finnes mer også denne dette blir meg",
    "fi": "ja on ei että se ne tämä tuo mikä mitä miten miksi milloin missä minä sinä hän me te he olen olet ovat oli"
          " voi voin voiko minun sinun kanssa kun jos tai mutta myös niin kuin joka jotka sekä vain ole voisitko onko"
          " kuinka",
    "pl": "i w na z ze do nie to jest są był była się że co jak dlaczego kiedy gdzie czy ja ty my wy on ona mój moja"
          " twój dla od po o oraz ale lub albo jeśli może mogę można mam ma przez przy ten ta te tego jaki jakie bardzo"
          " proszę",
    "cs": "a v na s z ze do ne to je jsou byl byla se že co jak proč kdy kde jestli já ty my vy on ona můj moje tvůj"
          " pro od po o ale nebo když může mohu mám má při ten ta tato jaký jaké velmi prosím který která není jsem"
          " bych jaká",
    "tr": "ve bir bu şu o ne nasıl neden niçin zaman nerede ben sen biz siz onlar benim senin için ile değil mi mı mu"
          " var yok ama veya çok daha en gibi kadar sonra önce olarak olan eder misin lütfen hangi şey bana ki",
    "ro": "și în de la cu pe nu este sunt era că ce cum când unde care eu tu noi voi el ea meu mea un o al ale pentru"
          " din sau dar dacă poate pot am are mai foarte acest această aceste fi să vă îmi nu-i",
    "hu": "a az és egy nem van vannak volt hogy mi mit miért mikor hol ki én te mi ti ők az enyém is vagy de ha csak"
          " mint meg kell lehet tudok tudom kérem nagyon ez ezt azt milyen melyik hogyan még már",
    "ru": "и в на с не что это как почему когда где я ты мы вы он она они мой моя для от по о из к у но или если можно"
          " могу есть был была быть так же бы какой какая который очень пожалуйста",
    "uk": "і в на з не що це як чому коли де я ти ми ви він вона вони мій моя для від по про із до у але або якщо можна"
          " можу є був була бути так же який яка дуже будь ласка та чи",
    "bg": "и в на с не че това как защо кога къде аз ти ние вие той тя те мой моя за от по из към но или ако може мога"
          " има е беше са съм да се ли който която много моля какво каква ми му до кой коя кое вече още",
}  # fmt: skip
_LETTERS: Final = {  # of its alphabet beyond a to z and the common Cyrillic; each counts once in a text
    "de": "äöüß", "fr": "àâçèéêëîïôœùûÿ", "es": "áéíóúñü¿¡", "pt": "áâãàçéêíóôõú", "it": "àèéìòù", "nl": "ëïé",
    "sv": "åäö", "da": "æøå", "no": "æøå", "fi": "äö", "pl": "ąćęłńóśźż", "cs": "áčďéěíňóřšťúůýž", "tr": "çğıöşü",
    "ro": "ăâîșțşţ", "hu": "áéíóöőúüű", "ru": "ыэёъщ", "uk": "іїєґщ", "bg": "ъщ",
}  # fmt: skip
_SCRIPTS: Final = {  # by Unicode block
    "el": "\u0370-\u03ff", "he": "\u0590-\u05ff", "th": "\u0e00-\u0e7f", "ko": "\uac00-\ud7af\u1100-\u11ff",
    "ja": "\u3040-\u30ff", "zh": "\u4e00-\u9fff\u3400-\u4dbf", "ar": "\u0600-\u06ff", "hi": "\u0900-\u097f",
    "bn": "\u0980-\u09ff", "ta": "\u0b80-\u0bff", "te": "\u0c00-\u0c7f", "hy": "\u0530-\u058f", "ka": "\u10a0-\u10ff",
}  # fmt: skip
LANGUAGES: Final = (*_FUNCTION_WORDS, *_SCRIPTS, "fa")
_OF_SCRIPT: Final = {name: re.compile(f"[{block}]") for name, block in _SCRIPTS.items()}
_PERSIAN: Final = re.compile("[پچژگی]")
_ARABIC: Final = re.compile("[ةىيك]")
_HINDI: Final = re.compile(r"(?<!\w)(?:है|हैं|का|की|के|में|और|से|को|क्या|कैसे)(?!\w)")
_LATER_SCRIPTS: Final = re.compile("[^\u0000-\u024f\u1e00-\u2fff\\W\\d_]")
_ADDRESSES: Final = re.compile(r"\w+://\S+")
_WORDS: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def _weights(having: Mapping[str, Iterable[str]]) -> dict[str, tuple[tuple[str, float], ...]]:
    """By word or letter: the languages that have it, each with one over how many have it."""
    languages: dict[str, list[str]] = {}
    for language, found in having.items():
        for one in set(found):
            languages.setdefault(one, []).append(language)
    return {one: tuple((name, 1.0 / len(names)) for name in names) for one, names in languages.items()}


_OF_WORD: Final = _weights({language: words.split() for language, words in _FUNCTION_WORDS.items()})
_OF_LETTER: Final = _weights(_LETTERS)


def language_of(text: str) -> str | None:
    """The language (ISO 639-1) of a text's beginning; None: it is not known.

    >>> language_of("Wie kann ich meine Rechnung bezahlen?"), language_of("How can I pay my bill?")
    ('de', 'en')
    >>> language_of("ok"), language_of("資料を送ってください")
    (None, 'ja')
    """
    sample = _ADDRESSES.sub(" ", text[:READ_CHARS])
    if _LATER_SCRIPTS.search(sample):
        found = _by_script(sample)
        if found is not None:
            return found
    lower = sample.lower().replace("’", "'")
    weights: defaultdict[str, float] = defaultdict(float)
    for word in _WORDS.findall(lower):
        for language, weight in _OF_WORD.get(word, ()):
            weights[language] += weight
    for letter in _OF_LETTER.keys() & set(lower):
        for language, weight in _OF_LETTER[letter]:
            weights[language] += weight
    best, second = nlargest(2, (*weights.values(), 0.0, 0.0))
    if best < max(LEAST_WEIGHT, LEAST_LEAD * second):
        return None
    return next(language for language, weight in weights.items() if weight == best)


def _by_script(sample: str) -> str | None:
    counts = {name: len(pattern.findall(sample)) for name, pattern in _OF_SCRIPT.items()}
    letters = sum(one.isalpha() for one in sample)
    counts["zh"] += counts["ja"]  # Japanese is written with both
    name = max(counts, key=lambda one: counts[one])
    if not letters or counts[name] < LEAST_SHARE * letters:
        return None
    if name == "zh" and counts["ja"] * 10 >= counts["zh"]:
        return "ja"
    if name == "ar":
        persian, arabic = len(_PERSIAN.findall(sample)), len(_ARABIC.findall(sample))
        return "fa" if persian > arabic else "ar"
    if name == "hi":  # Marathi and Nepali have the same letters
        return "hi" if _HINDI.search(sample) else None
    return name
