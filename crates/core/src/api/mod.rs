//! The API kinds: what administrators write and what the components say to one another.
