"""Orders that tests ask about."""

from hypothesis import strategies as st

REFERENCES = st.text("ABCXYZabcxyz0189._:-", min_size=1, max_size=64).filter(lambda text: text not in (".", ".."))
