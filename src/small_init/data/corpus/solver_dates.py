"""Solvers of reasoning-gym's questions about calendars and stretches of time.

A weekday named beside a date must be that date's. A date without a year is read only where the
year cannot matter, or where another date of the question gives it.
"""

import re
from calendar import isleap
from datetime import date, timedelta

from small_init.data.corpus.problems import Problem

MONTHS = (
    "January February March April May June July August September October November December".split()
)
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ORDINALS = ("first", "second", "third", "fourth")
_MONTH, _WEEKDAY = "|".join(MONTHS), "|".join(WEEKDAYS)
_DATE = re.compile(rf"(?:({_WEEKDAY}), )?({_MONTH}) (\d{{1,2}})(?:, (\d{{4}}))?(?!\d)")
# The ways in which an interval's ends are written; a weekday may stand before or behind.
_ENDS = (
    re.compile(rf"(?P<y>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d)(?: \((?P<w>{_WEEKDAY})\))?"),
    re.compile(r"(?P<m>\d\d)/(?P<d>\d\d)/(?P<y>\d{4})"),
    re.compile(rf"(?:(?P<w>{_WEEKDAY}), )?(?P<m>{_MONTH}) (?P<d>\d\d), (?P<y>\d{{4}})"),
    re.compile(r"(?P<w>[MTWFS][a-z]{2}) (?P<m>[JFMASOND][a-z]{2}) (?P<d>\d\d) (?P<y>\d{4})"),
    re.compile(rf"(?P<d>\d\d) (?P<m>{_MONTH}) (?P<y>\d{{4}})"),
)


def interval(problem: Problem) -> str | None:
    """Days between two dates, or hours and minutes between two times of one day."""
    times = re.findall(r"(\d\d):(\d\d)(?::(\d\d))?", problem.question)
    if times:
        return _clock(times) if len(times) == 2 else None
    for pattern in _ENDS:
        if len(ends := list(pattern.finditer(problem.question))) == 2:
            first, last = (_end(found) for found in ends)
            return f"{(last - first).days} days" if first and last and first <= last else None
    return None


def calendar(problem: Problem) -> str | None:
    """Leap years, weekdays, and how often a weekday falls in a stretch of days."""
    question = problem.question
    if "leap year" in question:
        found = re.search(r"\d{4}", question)
        return ("Yes" if isleap(int(found[0])) else "No") if found else None
    if found := re.search(rf"({'|'.join(ORDINALS)}|last) ({_WEEKDAY})", question):
        return _recurring(question, found[1], found[2])
    if found := re.search(rf"(?:first day of the year was a|January 1 fell on a|year where) "
                          rf"({_WEEKDAY})", question):  # fmt: skip
        return _from_new_year(question, found[1])
    if numeric := re.search(r"(\d\d)/(\d\d)/(\d{4})", question):
        return WEEKDAYS[date(int(numeric[3]), int(numeric[1]), int(numeric[2])).weekday()]
    days = _dates(question)
    match days:
        case [day]:
            return _moved(question, day)
        case [first, last] if first <= last:
            return _counted(question, first, last)
    return None


def _clock(times: list[tuple[str, str, str]]) -> str | None:
    first, last = (int(h) * 3600 + int(m) * 60 + int(s or 0) for h, m, s in times)
    if last < first:
        return None
    minutes, seconds = divmod(last - first, 60)
    shown = f"{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{shown}:{seconds:02d}" if times[0][2] else shown


def _end(found: re.Match[str]) -> date | None:
    part = found.groupdict()
    short = [name[:3] for name in MONTHS]
    month = int(part["m"]) if part["m"].isdigit() else short.index(part["m"][:3]) + 1
    day = date(int(part["y"]), month, int(part["d"]))
    return day if _named(day, part.get("w")) else None


def _named(day: date, weekday: str | None) -> bool:
    return not weekday or WEEKDAYS[day.weekday()][:3] == weekday[:3]


def _dates(question: str) -> list[date]:
    """The dates of a question, the last one's year for those without; none if one is not true."""
    found = _DATE.findall(question)
    if not found or not found[-1][3]:
        return []
    days = []
    for weekday, month, day, year in found:
        at = date(int(year or found[-1][3]), MONTHS.index(month) + 1, int(day))
        if not _named(at, weekday):
            return []
        days.append(at)
    return days


def _recurring(question: str, ordinal: str, weekday: str) -> str | None:
    found = re.search(rf"({_MONTH}) (\d{{4}})", question)
    if not found:
        return None
    day, month = date(int(found[2]), MONTHS.index(found[1]) + 1, 1), []
    while day.month == MONTHS.index(found[1]) + 1:
        if WEEKDAYS[day.weekday()] == weekday:
            month.append(day.day)
        day += timedelta(1)
    return str(month[-1] if ordinal == "last" else month[ORDINALS.index(ordinal)])


def _from_new_year(question: str, weekday: str) -> str | None:
    """No year is named, so nothing is known of days from the 29th of February on."""
    month, day = _DATE.findall(question)[-1][1:3]
    passed = (date(2023, MONTHS.index(month) + 1, int(day)) - date(2023, 1, 1)).days
    return WEEKDAYS[(WEEKDAYS.index(weekday) + passed) % 7] if passed < 59 else None


def _moved(question: str, day: date) -> str | None:
    """The weekday of a date, or of one so many days from it."""
    if found := re.search(r"(\d+)[- ]day", question):
        back = re.search(r"ago|before|backward", question)
        day += timedelta(-int(found[1]) if back else int(found[1]))
    return WEEKDAYS[day.weekday()]


def _counted(question: str, first: date, last: date) -> str | None:
    days = [first + timedelta(number) for number in range((last - first).days + 1)]
    if re.search(r"business days|excluding weekends", question):
        return str(sum(day.weekday() < 5 for day in days))
    asked = rf"(?:How many|occurrences of|times does) ({_WEEKDAY})"
    if not (found := re.search(asked, question)):
        return None
    return str(sum(WEEKDAYS[day.weekday()] == found[1] for day in days))
