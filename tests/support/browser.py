"""A browser without a screen: it opens the URL of its argument and follows where that leads."""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1]) as page:
    page.read()
