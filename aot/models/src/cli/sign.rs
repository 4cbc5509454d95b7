//! `precast-aot sign`

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use minisign::KeyPair;
use precast_fatbins::signature_path;
use precast_system::say;

use super::failure::Failure;
use super::io::{read, refuse_inputs, write};

#[derive(Args)]
pub struct Arguments {
    /// File to sign; the signature goes beside it as FILE.minisig
    #[arg(value_name = "FILE", required_unless_present = "new_key")]
    file: Option<PathBuf>,
    #[command(flatten)]
    key: Key,
    /// Make a key first: KEY, unencrypted, and KEY.pub (`minisign -G` makes encrypted ones)
    #[arg(long, requires = "key")]
    new_key: bool,
}

/// A secret key.
#[derive(Args)]
pub struct Key {
    /// Secret key, as minisign writes it; an encrypted one is opened with $PRECAST_KEY_PASSWORD
    #[arg(long, value_name = "KEY")]
    pub key: Option<PathBuf>,
}

impl Key {
    /// True if a key was named.
    pub fn is_given(&self) -> bool {
        self.key.is_some()
    }

    fn path(&self) -> Result<&Path, Failure> {
        self.key.as_deref().ok_or_else(|| Failure::Key("no --key".to_owned()))
    }

    /// Signs bytes and returns the text of a `.minisig`, which has no time stamp.
    pub fn sign(&self, bytes: &[u8]) -> Result<String, Failure> {
        let path = self.path()?;
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let wrong = |reason: String| Failure::Key(format!("{}: {reason}", path.display()));
        precast_fatbins::sign(&text, bytes, "precast-aot").map_err(wrong)
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.new_key {
        new_key(arguments.key.path()?)?;
    }
    if let Some(file) = &arguments.file {
        let path = signature_path(file);
        refuse_inputs(&path, &arguments.key.key)?;
        let signature = arguments.key.sign(&read(file)?)?;
        write(&path, signature.as_bytes())?;
        say!("{}", path.display());
    }
    Ok(())
}

/// Writes a new key pair; refuses to replace one.
fn new_key(path: &Path) -> Result<(), Failure> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let wrong = |error: minisign::PError| Failure::Key(error.to_string());
    let mut public = path.as_os_str().to_owned();
    public.push(".pub");
    if Path::new(&public).exists() {
        return Err(Failure::Io {
            what: "write",
            path: public.into(),
            error: std::io::ErrorKind::AlreadyExists.into(),
        });
    }
    let pair = KeyPair::generate_unencrypted_keypair().map_err(wrong)?;
    let io = |error| Failure::Io { what: "write", path: path.to_owned(), error };
    let secret = pair.sk.to_box(Some("precast secret key, unencrypted")).map_err(wrong)?.into_string();
    // Readable by its owner alone; never replaces an older key.
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    file.write_all(secret.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    let text = pair.pk.to_box().map_err(wrong)?.into_string();
    write(Path::new(&public), text.as_bytes())?;
    say!("{}: keep it secret; trust {}: {}", path.display(), Path::new(&public).display(), pair.pk.to_base64());
    Ok(())
}
