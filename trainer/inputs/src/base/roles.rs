//! The models of a run, by what they are in it.

use std::fmt;

/// The part that a model plays in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is learnt from: the teacher of this number, from 0.
    Teacher(usize),
    /// It trains.
    Student,
}

impl Role {
    /// Its name in messages and records, where there is one teacher.
    pub fn name(self) -> &'static str {
        match self {
            Role::Teacher(_) => "teacher",
            Role::Student => "student",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something of each model of a run: of one that trains, and of its teachers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Models<T> {
    /// The teachers', by their numbers.
    pub teachers: Vec<T>,
    /// The student's, which trains.
    pub student: T,
}

impl<T> Models<T> {
    /// Returns each with its role, the teachers first.
    pub fn iter(&self) -> impl Iterator<Item = (Role, &T)> {
        let teachers = self.teachers.iter().enumerate().map(|(number, model)| (Role::Teacher(number), model));
        teachers.chain([(Role::Student, &self.student)])
    }

    /// Returns each, the student first: what all have is taken from it.
    pub fn student_first(&self) -> impl Iterator<Item = &T> {
        [&self.student].into_iter().chain(&self.teachers)
    }

    /// Borrows each.
    pub fn as_ref(&self) -> Models<&T> {
        Models { teachers: self.teachers.iter().collect(), student: &self.student }
    }

    /// Maps each model's value, if that succeeds of all.
    ///
    /// # Errors
    /// The first one's, a teacher's before the student's.
    pub fn try_map<U, E>(&self, mut of: impl FnMut(&T) -> Result<U, E>) -> Result<Models<U>, E> {
        Ok(Models {
            teachers: self.teachers.iter().map(&mut of).collect::<Result<_, E>>()?,
            student: of(&self.student)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_come_with_their_roles_and_a_teacher_may_be_absent() {
        let list = |models: &Models<u8>| models.iter().map(|(role, of)| (role.name(), *of)).collect::<Vec<_>>();
        let (pair, alone) = (Models { teachers: vec![1], student: 2 }, Models { teachers: vec![], student: 2 });
        assert_eq!(list(&pair), [("teacher", 1), ("student", 2)]);
        assert_eq!(list(&alone), [("student", 2)]);
        assert_eq!(pair.student_first().collect::<Vec<_>>(), [&2, &1]);
        assert_eq!(alone.try_map(|of| Ok::<_, ()>(of + 1)).unwrap().student, 3);
        assert_eq!(pair.try_map(|of| if *of == 2 { Err(*of) } else { Ok(()) }), Err(2));
    }
}
