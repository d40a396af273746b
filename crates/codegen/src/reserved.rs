//! Names that generated Python cannot give to what it defines, because Python, pydantic or the module itself has them.
//!
//! `tests/codegen/names.rs` tries all names that they define in a real Python.

/// Python's keywords. The soft ones (`match`, `case`, `type`, `_`) are legal names everywhere.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Python's built-in names that a class could have. An annotation that names a class which is defined further down is
/// first looked up while there is no such class yet, and would find these.
#[rustfmt::skip]
const BUILTINS: [&str; 76] = [
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "BaseExceptionGroup",
    "BlockingIOError", "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError",
    "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "DeprecationWarning", "EOFError", "Ellipsis", "EncodingWarning", "EnvironmentError", "Exception",
    "ExceptionGroup", "FileExistsError", "FileNotFoundError", "FloatingPointError", "FutureWarning",
    "GeneratorExit", "IOError", "ImportCycleError", "ImportError", "ImportWarning", "IndentationError",
    "IndexError", "InterruptedError", "IsADirectoryError", "KeyError", "KeyboardInterrupt", "LookupError",
    "MemoryError", "ModuleNotFoundError", "NameError", "NotADirectoryError", "NotImplemented",
    "NotImplementedError", "OSError", "OverflowError", "PendingDeprecationWarning", "PermissionError",
    "ProcessLookupError", "PythonFinalizationError", "RecursionError", "ReferenceError", "ResourceWarning",
    "RuntimeError", "RuntimeWarning", "StopAsyncIteration", "StopIteration", "SyntaxError", "SyntaxWarning",
    "SystemError", "SystemExit", "TabError", "TimeoutError", "TypeError", "UnboundLocalError",
    "UnicodeDecodeError", "UnicodeEncodeError", "UnicodeError", "UnicodeTranslateError", "UnicodeWarning",
    "UserWarning", "ValueError", "Warning", "WindowsError", "ZeroDivisionError", "__build_class__",
    "__debug__",
];

/// Names that a module may import, or defines besides its classes and fields.
#[rustfmt::skip]
const MODULE: [&str; 14] = [
    "AnyEnum", "CLIENT", "IntEnum", "OpenModel", "StrEnum", "ToolModel", "ToolModule", "ToolResult",
    "ToolRoot", "annotations", "arguments", "parsed", "reply", "run",
];

/// Those of them that occur within classes: in annotations and defaults.
#[rustfmt::skip]
const MODULE_IN_CLASSES: [&str; 11] = [
    "Annotated", "Any", "Field", "Float", "FromList", "Int", "Literal", "Nullable", "Rule", "json_default",
    "tag_default",
];

/// The classes that the schemas of a tool become.
const ROOTS: [&str; 3] = ["Params", "ParseResult", "Result"];

/// Built-in types in annotations.
const TYPES: [&str; 7] = ["bool", "dict", "float", "int", "list", "str", "tuple"];

/// Attributes of the models' base class that do not begin with an underscore: a field of that name would hide them.
#[rustfmt::skip]
const MODEL_ATTRIBUTES: [&str; 31] = [
    "construct", "copy", "dict", "from_orm", "json", "model_computed_fields", "model_config",
    "model_construct", "model_copy", "model_dump", "model_dump_json", "model_extra", "model_fields",
    "model_fields_set", "model_json_schema", "model_parametrized_name", "model_post_init", "model_rebuild",
    "model_validate", "model_validate_json", "model_validate_strings", "mro", "parse_file", "parse_obj",
    "parse_raw", "register", "schema", "schema_json", "tool_result", "update_forward_refs", "validate",
];

/// Whether `name` is a keyword.
pub(super) fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&name)
}

/// Whether every module uses `name` already, so that no class can have it.
pub(super) fn is_taken(name: &str) -> bool {
    BUILTINS.contains(&name) || MODULE.contains(&name) || MODULE_IN_CLASSES.contains(&name)
}

/// Whether a class called `name` would be taken for that of one of the tool's schemas.
pub(super) fn is_root(name: &str) -> bool {
    ROOTS.contains(&name)
}

/// Whether a model cannot have a field called `name`: it would hide an attribute, or change what an annotation means.
pub(super) fn is_refused_as_field(name: &str) -> bool {
    is_keyword(name)
        || MODEL_ATTRIBUTES.contains(&name)
        || TYPES.contains(&name)
        || MODULE_IN_CLASSES.contains(&name)
}
