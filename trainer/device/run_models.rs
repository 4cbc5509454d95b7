//! The models of a run: files, or random weights.

use std::borrow::Borrow;
use std::path::Path;
use std::sync::Arc;

use crate::base::roles::Models;
use crate::device::DeviceError;
use crate::device::shapes::{Shapes, TeacherShape, adapters, open_caches, same_paths};
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{Checkpoint, Weights};
use crate::inputs::random::read_or_random;
use crate::inputs::teacher_cache::TeacherCache;
use crate::options::{RunConfig, TaughtBy};

/// The models of a run.
pub struct RunModels<W> {
    /// The student trains, or what its adapter is of.
    pub models: Models<W>,
    /// It trains while the student stays as it is.
    pub adapter: Option<Adapter>,
    /// Source of each teacher's predictions.
    pub by: Vec<TaughtBy>,
    /// True of each teacher that is the student's files, byte for byte.
    pub same_files: Vec<bool>,
    /// Cache of each teacher that has one, of which no more than the head is a model then.
    pub caches: Vec<Option<Arc<TeacherCache>>>,
}

/// Opens the caches of teachers, whose heads are verified.
fn open_whole(config: &RunConfig) -> Result<Vec<Option<Arc<TeacherCache>>>, DeviceError> {
    let caches = open_caches(config)?;
    caches.iter().flatten().try_for_each(TeacherCache::check_head)?;
    Ok(caches.into_iter().map(|cache| cache.map(Arc::new)).collect())
}

/// Opens what is there of a teacher that is cached: its configuration and tokenizer, and of an exact cache its head.
pub(crate) fn open_head(path: &Path, cache: &TeacherCache) -> Result<Checkpoint, DeviceError> {
    let head = Checkpoint::open_without_layers(path, cache.manifest().made.compact.is_none())?;
    cache.check_model(head.config())?;
    Ok(head)
}

/// Refuses a compact cache of another vocabulary than the student's.
fn check_student(caches: &[Option<Arc<TeacherCache>>], student: &dyn Weights) -> Result<(), DeviceError> {
    Ok(caches.iter().flatten().try_for_each(|cache| cache.check_student(student.config().vocab))?)
}

/// Returns the source of each teacher's predictions.
fn taught_by(config: &RunConfig) -> Vec<TaughtBy> {
    config.teachers.iter().map(|teacher| teacher.by.clone()).collect()
}

impl RunModels<Checkpoint> {
    /// Opens the models that a configuration names; those of one path are the same files.
    ///
    /// # Errors
    /// [`DeviceError`] where one cannot be read.
    pub fn open(config: &RunConfig) -> Result<Self, DeviceError> {
        let caches = open_whole(config)?;
        let Models { teachers, student } = config.models();
        let teachers = teachers.into_iter().zip(&caches).map(|(path, cache)| match cache {
            Some(cache) => open_head(path, cache),
            None => Ok(Checkpoint::open(path)?),
        });
        let teachers = teachers.collect::<Result<_, DeviceError>>()?;
        let models = Models { teachers, student: Checkpoint::open(student)? };
        check_student(&caches, &models.student)?;
        let adapter = config.open_adapter(models.student.config())?;
        let same_files = same_paths(&config.models());
        Ok(Self { models, adapter, by: taught_by(config), same_files, caches })
    }
}

impl RunModels<Box<dyn Weights>> {
    /// Opens them, but draws the weights of a bare `config.json` by a seed: that of teachers, or the student's.
    ///
    /// # Errors
    /// [`DeviceError`] where one cannot be read.
    pub fn open_or_random(config: &RunConfig, [of_teachers, of_student]: [u64; 2]) -> Result<Self, DeviceError> {
        let caches = open_whole(config)?;
        let teachers = config.teachers.iter().zip(&caches).map(|(teacher, cache)| match cache {
            Some(cache) => open_head(&teacher.path, cache).map(|model| Box::new(model) as Box<dyn Weights>),
            None => Ok(read_or_random(&teacher.path, of_teachers)?),
        });
        let teachers = teachers.collect::<Result<_, DeviceError>>()?;
        let student = read_or_random(&config.student, of_student)?;
        check_student(&caches, &*student)?;
        let adapter = config.open_adapter(student.config())?;
        let same_files = same_paths(&config.models());
        Ok(Self { models: Models { teachers, student }, adapter, by: taught_by(config), same_files, caches })
    }
}

impl<W: Borrow<dyn Weights>> RunModels<W> {
    /// Returns the models that are learnt from, by their numbers.
    pub fn teachers(&self) -> impl Iterator<Item = &dyn Weights> + '_ {
        self.models.teachers.iter().map(|model| model.borrow())
    }

    /// Returns the model that trains, or whose adapter does.
    pub fn student(&self) -> &dyn Weights {
        self.models.student.borrow()
    }

    /// Returns the shapes that a plan follows from.
    pub fn shapes(&self) -> Shapes {
        let shape = |weights: &dyn Weights| (weights.config().clone(), weights.formats());
        let of_teacher = |(number, weights): (usize, &dyn Weights)| TeacherShape {
            config: weights.config().clone(),
            formats: weights.formats(),
            by: self.by[number].clone(),
            same_files: self.same_files[number],
            cache: self.caches[number].as_ref().map(|cache| cache.manifest().clone()),
        };
        Shapes {
            teachers: self.teachers().enumerate().map(of_teacher).collect(),
            student: shape(self.student()),
            adapters: adapters(self.adapter.as_ref()),
        }
    }
}
