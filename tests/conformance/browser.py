#!/usr/bin/env python3
"""Plays a user's browser, and a user who consents: GETs a URL and follows redirects, cookies included.

`browser.py URL`, as `$BROWSER` is called. `$BROWSER_LOG` names a file that gets a line of JSON per page: the URL, the
status and the beginning of the text. A form with a button `allow` is submitted, with its hidden fields. Standard
library only.
"""

import html.parser
import http.cookiejar
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

PAGES_FOLLOWED = 20
TIMEOUT_SECS = 300


class Forms(html.parser.HTMLParser):
    """The forms of a page: their target, hidden fields, and whether there is a button `allow`."""

    def __init__(self):
        super().__init__()
        self.forms = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form":
            form = {
                "action": attributes.get("action", ""),
                "fields": {},
                "allow": False,
            }
            self.forms.append(form)
        elif self.forms and tag in ("input", "button"):
            form = self.forms[-1]
            is_allow = attributes.get("id") == "allow"
            form["allow"] |= is_allow
            name = attributes.get("name")
            if name and (is_allow or attributes.get("type") == "hidden"):
                form["fields"][name] = attributes.get("value", "")


class Kept(urllib.request.HTTPRedirectHandler):
    """Redirects are left to the caller, who notes each."""

    def redirect_request(self, *_):
        return None


def note(**entry):
    path = os.environ.get("BROWSER_LOG")
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")


def visit(opener, url, data=None):
    """The status, the headers and the text that a URL is answered with."""
    headers = {"Accept": "text/html,*/*", "User-Agent": "Mozilla/5.0 (a test)"}
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        answer = opener.open(request, timeout=TIMEOUT_SECS)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        text = answer.read(1 << 20).decode("utf-8", "replace")
        note(url=url, status=answer.status, text=text[:20_000])
        return answer.status, answer.headers, text


def main(url):
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPCookieProcessor(jar),
        Kept(),
    )
    data = None
    for _ in range(PAGES_FOLLOWED):
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            note(url=url, status=None, text="")
            sys.exit(f"not a page: {url}")
        status, headers, text = visit(opener, url, data)
        data = None
        if status in (301, 302, 303, 307, 308) and headers["Location"]:
            url = urllib.parse.urljoin(url, headers["Location"])
            continue
        page = Forms()
        page.feed(text)
        form = next((form for form in page.forms if form["allow"]), None)
        if form is None:
            print(f"{status} {url}")
            # A page of an error is a page: whoever listens says what came.
            sys.exit(0 if status < 400 else 1)
        url = urllib.parse.urljoin(url, form["action"])
        data = urllib.parse.urlencode(form["fields"]).encode()
    sys.exit(f"more than {PAGES_FOLLOWED} pages, the last is {url}")


if __name__ == "__main__":
    main(sys.argv[1])
