//! The module search path: site-packages folders, .pth files, editable installs.
