//! Arguments of a launch by name: a parameter block without what nobody fills in.

/// Declares the arguments of a parameter block, and makes the block of them: addresses of operands, 0 for those that a launch
/// does not have, then scalars. What is reserved, and what the driver fills in, is zero.
macro_rules! arguments {
    ($name:ident of $params:ident {
        operands { $($operand:ident),* }
        optional { $($optional:ident),* }
        scalars { $($scalar:ident: $type:ty),* }
    }) => {
        #[doc = concat!("Arguments of a launch, as [`", stringify!($params), "`] says.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $name<A> {
            $(pub $operand: A,)*
            $(pub $optional: Option<A>,)*
            $(pub $scalar: $type,)*
        }

        impl<A: Into<address>> From<$name<A>> for $params {
            #[allow(clippy::needless_update)] // Not every block has reserved fields.
            fn from(args: $name<A>) -> Self {
                Self {
                    $($operand: args.$operand.into(),)*
                    $($optional: args.$optional.map_or(0, Into::into),)*
                    $($scalar: args.$scalar,)*
                    ..bytemuck::Zeroable::zeroed()
                }
            }
        }
    };
}
pub(crate) use arguments;
