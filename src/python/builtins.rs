//! Names that Python defines everywhere: builtins by version, and what every module has.

/// Builtins of every supported Python (3.10 and newer), sorted.
const ALWAYS: &[&str] = &[
    "ArithmeticError",
    "AssertionError",
    "AttributeError",
    "BaseException",
    "BlockingIOError",
    "BrokenPipeError",
    "BufferError",
    "BytesWarning",
    "ChildProcessError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "DeprecationWarning",
    "EOFError",
    "Ellipsis",
    "EncodingWarning",
    "EnvironmentError",
    "Exception",
    "False",
    "FileExistsError",
    "FileNotFoundError",
    "FloatingPointError",
    "FutureWarning",
    "GeneratorExit",
    "IOError",
    "ImportError",
    "ImportWarning",
    "IndentationError",
    "IndexError",
    "InterruptedError",
    "IsADirectoryError",
    "KeyError",
    "KeyboardInterrupt",
    "LookupError",
    "MemoryError",
    "ModuleNotFoundError",
    "NameError",
    "None",
    "NotADirectoryError",
    "NotImplemented",
    "NotImplementedError",
    "OSError",
    "OverflowError",
    "PendingDeprecationWarning",
    "PermissionError",
    "ProcessLookupError",
    "RecursionError",
    "ReferenceError",
    "ResourceWarning",
    "RuntimeError",
    "RuntimeWarning",
    "StopAsyncIteration",
    "StopIteration",
    "SyntaxError",
    "SyntaxWarning",
    "SystemError",
    "SystemExit",
    "TabError",
    "TimeoutError",
    "True",
    "TypeError",
    "UnboundLocalError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "UnicodeError",
    "UnicodeTranslateError",
    "UnicodeWarning",
    "UserWarning",
    "ValueError",
    "Warning",
    "ZeroDivisionError",
    "__build_class__",
    "__debug__",
    "__import__",
    "abs",
    "aiter",
    "all",
    "anext",
    "any",
    "ascii",
    "bin",
    "bool",
    "breakpoint",
    "bytearray",
    "bytes",
    "callable",
    "chr",
    "classmethod",
    "compile",
    "complex",
    "copyright",
    "credits",
    "delattr",
    "dict",
    "dir",
    "divmod",
    "enumerate",
    "eval",
    "exec",
    "exit",
    "filter",
    "float",
    "format",
    "frozenset",
    "getattr",
    "globals",
    "hasattr",
    "hash",
    "help",
    "hex",
    "id",
    "input",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "license",
    "list",
    "locals",
    "map",
    "max",
    "memoryview",
    "min",
    "next",
    "object",
    "oct",
    "open",
    "ord",
    "pow",
    "print",
    "property",
    "quit",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "setattr",
    "slice",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "vars",
    "zip",
];

/// Builtins with the first version that has them.
const SINCE: &[(&str, (u32, u32))] =
    &[("BaseExceptionGroup", (3, 11)), ("ExceptionGroup", (3, 11)), ("PythonFinalizationError", (3, 13))];

/// Names that every module has without binding them.
const MODULE: &[&str] = &[
    "__annotations__",
    "__builtins__",
    "__cached__",
    "__dict__",
    "__doc__",
    "__file__",
    "__loader__",
    "__name__",
    "__package__",
    "__path__",
    "__spec__",
];

/// Whether `name` is a builtin; with an unknown version, whether it may be one.
pub fn is_builtin(name: &str, python: Option<(u32, u32)>) -> bool {
    ALWAYS.binary_search(&name).is_ok()
        || name == "WindowsError"
        || SINCE.iter().any(|(known, since)| *known == name && python.is_none_or(|version| version >= *since))
}

/// Whether every module has the attribute `name` without binding it.
pub fn is_module_attribute(name: &str) -> bool {
    MODULE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_decide() {
        assert!(ALWAYS.is_sorted());
        assert!(is_builtin("len", None) && is_builtin("anext", Some((3, 10))));
        assert!(!is_builtin("ExceptionGroup", Some((3, 10))));
        assert!(is_builtin("ExceptionGroup", Some((3, 11))) && is_builtin("ExceptionGroup", None));
        assert!(!is_builtin("unicode", None));
        assert!(is_module_attribute("__file__"));
    }
}
