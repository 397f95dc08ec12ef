//! Where a word is: file, line, column. Everything the resolver yields carries one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A place in a file below the root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file, as it is called on the host; bytes that are not UTF-8 show as `U+FFFD`.
    pub file: Arc<str>,
    /// The line, counted from 1; 0 means the file as a whole.
    pub line: u32,
    /// The column, counted in characters from 1; 0 means the line as a whole.
    pub column: u32,
    /// How many characters the word takes; 0 where that is not known.
    pub width: u32,
}

/// A value and the file and line that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it is.
    pub at: Location,
}

impl Location {
    /// The file as a whole.
    pub fn file(path: impl AsRef<Path>) -> Self {
        Self { file: path.as_ref().to_string_lossy().into(), line: 0, column: 0, width: 0 }
    }

    /// A line of the same file.
    #[must_use]
    pub fn at_line(&self, line: u32) -> Self {
        Self { file: Arc::clone(&self.file), line, column: 0, width: 0 }
    }

    /// A word in a line of the same file.
    #[must_use]
    pub fn at(&self, line: u32, column: u32, width: u32) -> Self {
        Self { file: Arc::clone(&self.file), line, column, width }
    }

    /// The same, without the column: what `expected.json` and messages name.
    pub fn file_line(&self) -> String {
        if self.line == 0 { self.file.to_string() } else { format!("{}:{}", self.file, self.line) }
    }
}

impl fmt::Display for Location {
    /// `file:line`, as messages name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_line())
    }
}
