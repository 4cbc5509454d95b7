//! Variants: parameters of a key's build, apart from its computation.
//!
//! A kernel declares its own as a type, with [`variant!`](crate::variant!); outside of its family a variant is a
//! [`Variant`], the same numbers with their names.

use std::fmt;

/// Named numbers a kernel is built with (tile, stages, warps, ...), alphabetical.
///
/// Each becomes the macro `VARIANT_<NAME>`. Every variant names `threads`, the threads of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant([(&'static str, u32); Self::MOST]);

impl Variant {
    const MOST: usize = 8;

    /// Builds a variant of these numbers.
    ///
    /// # Panics
    /// If there are more than 8.
    pub const fn new(numbers: &[(&'static str, u32)]) -> Self {
        let mut all = [("", 0); Self::MOST];
        let mut index = 0;
        while index < numbers.len() {
            all[index] = numbers[index];
            index += 1;
        }
        Self(all)
    }

    /// Returns the numbers and their names.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.0.into_iter().take_while(|(name, _)| !name.is_empty())
    }

    /// Returns the threads per CTA, which `variant!` guarantees.
    pub fn threads(self) -> u32 {
        self.numbers().find(|(name, _)| *name == "threads").map_or(0, |(_, threads)| threads)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.numbers().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

/// A kernel's own variant type. Implemented by [`variant!`](crate::variant!).
pub trait Numbers: Copy + Send + Sync + 'static {
    /// Returns the numbers and their names.
    fn erase(self) -> Variant;
    /// Returns the typed value; none if the numbers are another type's.
    fn of(variant: Variant) -> Option<Self>;
}

/// A number of a variant, in its typed form.
pub trait Number: Copy {
    /// Returns its number in a variant's text and in `VARIANT_<NAME>`.
    fn number(self) -> u32;
    /// Returns the value of a number; none if there is no such value.
    fn of(number: u32) -> Option<Self>;
}

impl Number for u32 {
    fn number(self) -> u32 {
        self
    }
    fn of(number: u32) -> Option<Self> {
        Some(number)
    }
}

/// A field with one value, which selects a kind of variant in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed<const N: u32>;

impl<const N: u32> Number for Fixed<N> {
    fn number(self) -> u32 {
        N
    }
    fn of(number: u32) -> Option<Self> {
        (number == N).then_some(Self)
    }
}

/// Declares a kernel's variant type: a struct of numbers, alphabetical, `threads` among them, or an enum of such
/// structs, each in a variant of its own name.
#[macro_export]
macro_rules! variant {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$doc])* #[doc = concat!("Number `", stringify!($field), "`.")] pub $field: $type),* }

        // Every variant has its threads.
        const _: fn(&$name) -> u32 = |variant| variant.threads;

        impl $crate::variant::Numbers for $name {
            fn erase(self) -> $crate::Variant {
                $crate::Variant::new(&[$((stringify!($field), $crate::variant::Number::number(self.$field))),*])
            }
            fn of(variant: $crate::Variant) -> Option<Self> {
                let mut numbers = variant.numbers();
                let typed = Self { $($field: match numbers.next() {
                    Some((stringify!($field), number)) => $crate::variant::Number::of(number)?,
                    _ => return None,
                }),* };
                numbers.next().is_none().then_some(typed)
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $row:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$doc])* $row($row)),* }

        impl $crate::variant::Numbers for $name {
            fn erase(self) -> $crate::Variant {
                match self { $(Self::$row(row) => $crate::variant::Numbers::erase(row)),* }
            }
            fn of(variant: $crate::Variant) -> Option<Self> {
                None$(.or_else(|| <$row as $crate::variant::Numbers>::of(variant).map(Self::$row)))*
            }
        }
    };
}

variant! {
    /// CTAs with this many threads, and nothing else to choose.
    pub struct Threads {
        threads: u32,
    }
}
