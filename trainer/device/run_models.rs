//! The models of a run: files, or random weights.

use std::borrow::Borrow;
use std::path::Path;
use std::sync::Arc;

use crate::base::roles::Models;
use crate::device::DeviceError;
use crate::device::shapes::{Shapes, adapters, open_cache, same_paths};
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{Checkpoint, Weights};
use crate::inputs::random::read_or_random;
use crate::inputs::teacher_cache::TeacherCache;
use crate::options::RunConfig;

/// The models of a run.
pub struct RunModels<W> {
    /// The student trains, or what its adapter is of.
    pub models: Models<W>,
    /// It trains while the student stays as it is.
    pub adapter: Option<Adapter>,
    /// True if teacher and student are the same files, byte for byte.
    pub same_files: bool,
    /// Cache of the teacher, of which no more than the head is a model then.
    pub cache: Option<Arc<TeacherCache>>,
}

/// Opens the cache of a teacher, whose head is verified.
fn open_whole(config: &RunConfig) -> Result<Option<Arc<TeacherCache>>, DeviceError> {
    let cache = open_cache(config)?;
    cache.as_ref().map_or(Ok(()), TeacherCache::check_head)?;
    Ok(cache.map(Arc::new))
}

/// Opens what is there of a teacher that is cached: its configuration and tokenizer, and of an exact cache its head.
pub(crate) fn open_head(path: &Path, cache: &TeacherCache) -> Result<Checkpoint, DeviceError> {
    let head = Checkpoint::open_without_layers(path, cache.manifest().made.compact.is_none())?;
    cache.check_model(head.config())?;
    Ok(head)
}

/// Refuses a compact cache of another vocabulary than the student's.
fn check_student(cache: Option<&Arc<TeacherCache>>, student: &dyn Weights) -> Result<(), DeviceError> {
    Ok(cache.map_or(Ok(()), |cache| cache.check_student(student.config().vocab))?)
}

impl RunModels<Checkpoint> {
    /// Opens the models that a configuration names; those of one path are the same files.
    ///
    /// # Errors
    /// [`DeviceError`] where one cannot be read.
    pub fn open(config: &RunConfig) -> Result<Self, DeviceError> {
        let cache = open_whole(config)?;
        let Models { teacher, student } = config.models();
        let teacher = teacher.map(|path| match &cache {
            Some(cache) => open_head(path, cache),
            None => Ok(Checkpoint::open(path)?),
        });
        let teacher = teacher.transpose()?;
        let models = Models { teacher, student: Checkpoint::open(student)? };
        check_student(cache.as_ref(), &models.student)?;
        let adapter = config.open_adapter(models.student.config())?;
        Ok(Self { models, adapter, same_files: same_paths(config.models()), cache })
    }
}

impl RunModels<Box<dyn Weights>> {
    /// Opens them, but draws the weights of a bare `config.json` by the seed of its role.
    ///
    /// # Errors
    /// [`DeviceError`] where one cannot be read.
    pub fn open_or_random(config: &RunConfig, seeds: Models<u64>) -> Result<Self, DeviceError> {
        let cache = open_whole(config)?;
        let teacher = config.teacher.as_deref().zip(seeds.teacher);
        let teacher = teacher.map(|(path, seed)| match &cache {
            Some(cache) => open_head(path, cache).map(|model| Box::new(model) as Box<dyn Weights>),
            None => Ok(read_or_random(path, seed)?),
        });
        let (teacher, student) = (teacher.transpose()?, read_or_random(&config.student, seeds.student)?);
        check_student(cache.as_ref(), &*student)?;
        let adapter = config.open_adapter(student.config())?;
        Ok(Self { models: Models { teacher, student }, adapter, same_files: same_paths(config.models()), cache })
    }
}

impl<W: Borrow<dyn Weights>> RunModels<W> {
    /// Returns the model that is learnt from; none where nobody teaches.
    pub fn teacher(&self) -> Option<&dyn Weights> {
        self.models.teacher.as_ref().map(Borrow::borrow)
    }

    /// Returns the model that trains, or whose adapter does.
    pub fn student(&self) -> &dyn Weights {
        self.models.student.borrow()
    }

    /// Returns the shapes that a plan follows from.
    pub fn shapes(&self) -> Shapes {
        let shape = |weights: &dyn Weights| (weights.config().clone(), weights.formats());
        Shapes {
            teacher: self.teacher().map(shape),
            student: shape(self.student()),
            adapters: adapters(self.adapter.as_ref()),
            same_files: self.same_files,
            cache: self.cache.as_ref().map(|cache| cache.manifest().clone()),
        }
    }
}
