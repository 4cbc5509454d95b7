//! The digests of what a run reads: hashing gigabytes takes a while, and nothing waits for it until they are needed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use precast_fatbins::Digest;

use super::wait::unless_stopped;
use crate::base::roles::Models;
use crate::base::stop::Stop;
use crate::device::run_models::RunModels;
use crate::inputs::checkpoint::{self, Checkpoint, CheckpointError};
use crate::inputs::data::DataError;
use crate::run::failure::Failure;

/// Digests that a thread computes once, or again where it has failed.
pub struct Digests<T, E> {
    hash: Arc<dyn Fn() -> Result<T, E> + Send + Sync>,
    under_way: Option<JoinHandle<Result<T, E>>>,
    done: Option<T>,
}

impl<T: Clone + Send + 'static, E: Send + 'static> Digests<T, E>
where
    Failure: From<E>,
{
    /// Starts hashing. A process that ends does not wait for it.
    pub fn of(hash: impl Fn() -> Result<T, E> + Send + Sync + 'static) -> Self {
        let hash = Arc::new(hash);
        let work = Arc::clone(&hash);
        Self { hash, under_way: Some(std::thread::spawn(move || work())), done: None }
    }

    /// Waits for it while a run starts, unless it is to stop.
    pub fn wait(&mut self, stop: &Stop) -> Result<T, Failure> {
        if let Some(thread) = self.under_way.take() {
            self.done = Some(unless_stopped(stop, "hashing weights and data", || {
                thread.join().expect("hashing does not panic")
            })??);
        }
        self.get()
    }

    /// Waits for it.
    pub fn get(&mut self) -> Result<T, Failure> {
        let done = match (self.done.take(), self.under_way.take()) {
            (Some(done), _) => done,
            (None, Some(thread)) => thread.join().expect("hashing does not panic")?,
            (None, None) => (self.hash)()?,
        };
        Ok(self.done.insert(done).clone())
    }
}

/// Digest of the training data.
pub type DataDigest = Digests<Digest, DataError>;

/// Digests of the models' weights.
pub struct ModelDigests {
    pub weights: Digests<Models<Digest>, CheckpointError>,
    files: Models<Vec<PathBuf>>,
    /// True if the page cache is to forget the files once they are hashed.
    forget: Arc<AtomicBool>,
}

impl ModelDigests {
    pub fn start(RunModels { models, caches, .. }: &RunModels<Checkpoint>) -> Self {
        // Of a teacher that is cached, the weights that its hidden states follow from; its head was hashed as it was
        // opened.
        let cached = caches.iter().map(|cache| Some(cache.as_ref()?.manifest().made.teacher_sha256));
        let cached: Vec<Option<Digest>> = cached.collect();
        let teachers = models.teachers.iter().map(Checkpoint::weight_files).collect();
        let files = Models { teachers, student: models.student.weight_files() };
        let forget = Arc::new(AtomicBool::new(false));
        let hashed = files.clone();
        let forgets = Arc::clone(&forget);
        let hash = move |files: &Vec<PathBuf>| {
            let digest = checkpoint::digest(files)?;
            if forgets.load(Ordering::Acquire) {
                checkpoint::forget(files);
            }
            Ok(digest)
        };
        let weights = Digests::of(move || {
            let teachers = hashed.teachers.iter().zip(&cached);
            let teachers = teachers.map(|(files, cached)| cached.map_or_else(|| hash(files), Ok));
            Ok(Models { teachers: teachers.collect::<Result<_, _>>()?, student: hash(&hashed.student)? })
        });
        Self { weights, files, forget }
    }

    /// Has the page cache forget what hashing reads: where host and device have one memory, nobody maps those pages.
    pub fn forget_pages(&self) {
        self.forget.store(true, Ordering::Release);
        if self.weights.under_way.as_ref().is_none_or(JoinHandle::is_finished) {
            self.files.iter().for_each(|(_, files)| checkpoint::forget(files));
        }
    }
}
