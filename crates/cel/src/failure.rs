//! Why an expression gave no value.

use std::fmt;

use kube_cel::cel::ExecutionError;

use crate::value;

/// Why an expression gave no value. Only [`Failure::Error`] can be made good by `||` and `&&`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// What the expression did wrong, in the words of cel-go.
    Error(String),
    /// It costs more than one expression may.
    TooExpensive,
    /// A function of the library panicked; the text names it.
    Broken(String),
}

impl Failure {
    pub(crate) fn no_such_overload() -> Self {
        Self::Error("no such overload".into())
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::Error(format!("no such key: {key}"))
    }

    /// Whether evaluating must not go on.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Error(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(text) => f.write_str(text),
            Self::TooExpensive => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Broken(function) => write!(f, "internal error in function {function}"),
        }
    }
}

/// The library has texts of its own, some with whole values in them.
impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        use ExecutionError as E;
        Self::Error(match error {
            E::NoSuchKey(key) => return Self::no_such_key(key),
            E::DivisionByZero(_) => "division by zero".into(),
            E::RemainderByZero(_) => "modulus by zero".into(),
            E::Overflow(..) => "integer overflow".into(),
            E::IndexOutOfBounds(index) => {
                format!("index out of bounds: {}", value::key_text(&index))
            }
            E::FunctionError { function, message } => format!("{function}: {message}"),
            E::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
            _ => return Self::no_such_overload(),
        })
    }
}
