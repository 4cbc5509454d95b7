//! The right to load a module, as a value.

/// The right to load a module: [`Launcher::load`](crate::Launcher::load) takes one, and only this crate makes it, where
/// all modules of a program are loaded before its first launch. Another crate can implement a driver and forward the
/// permit that it is lent; a call of its own, at any later time, does not compile.
#[derive(Debug)]
pub struct Permit(());

impl Permit {
    pub(crate) fn new() -> Self {
        Self(())
    }
}
