"""`python -m mustit_pipeline.settings > docs/settings.md`"""

from mustit_pipeline.settings.page import settings_page

if __name__ == "__main__":
    print(settings_page(), end="")
