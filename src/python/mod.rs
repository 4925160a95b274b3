//! The Python front end: decode, parse and lower to the index; the only user of the parser crates.
