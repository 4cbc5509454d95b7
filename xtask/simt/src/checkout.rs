//! CUDA sources as they lie on disk, in place of those that this program was built with: after an edit nothing is
//! built.

use std::io;
use std::path::{Path, PathBuf};

use precast_core::Source;
use precast_core::source::Header;

/// The folder `kernels` of a checkout.
pub struct Checkout(PathBuf);

/// A source that cannot be read as it lies there.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It, or a header, is not there, or cannot be read.
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    /// It includes what the program that compiles it is not told of.
    #[error("{source_path} includes {header}, which its `source!` does not list (`mod.rs` of the family)")]
    Header { source_path: &'static str, header: &'static str },
}

impl Checkout {
    /// The checkout whose root this is.
    pub fn at(root: &Path) -> Self {
        Self(root.join("kernels"))
    }

    /// Reads a source and the headers that it may include.
    ///
    /// # Errors
    /// [`SourceError`] where one of them is not there.
    pub fn source(&self, built: &Source) -> Result<Source, SourceError> {
        let text = read(&self.0.join("src").join(built.path), built.text)?;
        // A family's own come first, as they do where sources are compiled.
        let headers = built.headers.iter().chain(built.common.all()).map(|(name, text)| {
            let path = self.header(built.path, name);
            read(&path, text).map(|text| (*name, text))
        });
        let headers: Vec<Header> = headers.collect::<Result<_, _>>()?;
        let source = Source { path: built.path, text, headers: headers.leak(), common: built.common };
        match source.missing() {
            Some(header) => Err(SourceError::Header { source_path: source.path, header }),
            None => Ok(source),
        }
    }

    /// Finds the file that an include of a source names: below `src`, in the folder of its family or in that of its own
    /// name, or one of the common ones.
    fn header(&self, source: &str, name: &str) -> PathBuf {
        let [family, own] = [source.split('/').next(), name.split('.').next()].map(Option::unwrap_or_default);
        let families = [String::from("src"), format!("src/{family}"), format!("src/{own}")];
        let folders = families.into_iter().chain(["cuda", "core/cuda"].map(String::from));
        let mut places = folders.map(|folder| self.0.join(folder).join(name));
        let last = self.0.join("cuda").join(name);
        places.find(|path| path.is_file()).unwrap_or(last)
    }
}

/// The text of a file; the one that the program has, where they are the same.
fn read(path: &Path, built: &'static str) -> Result<&'static str, SourceError> {
    let text = std::fs::read_to_string(path).map_err(|error| SourceError::Read { path: path.to_owned(), error })?;
    Ok(if text == built { built } else { text.leak() })
}
