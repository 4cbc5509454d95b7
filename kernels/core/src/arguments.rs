//! Arguments of a launch by name: a parameter block without reserved fields.

/// Declares the arguments of a parameter block, and builds the block from them: addresses of operands, 0 for absent
/// ones, then scalars. Reserved fields, and those that the driver fills in, are zero.
#[macro_export]
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

        impl<A: Into<$crate::abi::address>> From<$name<A>> for $params {
            #[allow(clippy::needless_update)] // Not every block has reserved fields.
            fn from(args: $name<A>) -> Self {
                Self {
                    $($operand: args.$operand.into(),)*
                    $($optional: args.$optional.map_or(0, Into::into),)*
                    $($scalar: args.$scalar,)*
                    ..$crate::bytemuck::Zeroable::zeroed()
                }
            }
        }
    };
}
