//! Parameter blocks and their kernels, as `precast-abi` writes them down.

/// Declares a parameter block. With a name for its arguments it also declares these, a launch's values by name, and the
/// kernels that take the block.
///
/// A field is an `operand`, which every launch has, one that is `optional`, a `scalar`, or `internal`: reserved, or
/// filled in by the driver. An operand has its access, under a condition or two, then its format, number of elements
/// and content of checks. `|self, p|` names the key and the block in these expressions, and the counts behind it, u64.
/// Fields of a block of scalars may say what checks give them.
#[macro_export]
macro_rules! parameters {
    ($(#[$meta:meta])* pub struct $params:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty $(= $checked:expr)?;)*
    }) => {
        $crate::parameters!(@block $(#[$meta])* $params { $($(#[$doc])* $field: $type,)* });

        impl $params {
            /// Content of checks, field by field.
            pub const CHECKED: &'static [$crate::Scalar] = &[$($($checked,)?)*];
        }
    };
    ($(#[$meta:meta])* pub struct $params:ident, $args:ident $fields:tt
        |$this:ident, $p:ident| $counts:tt $launch:tt
        $($(#[$doc:meta])* kernel $key:ident = $op:literal { $($field:ident: $type:ty),* };)+
    ) => {
        $crate::parameters!(@fields $(#[$meta])* $params, $args $fields);
        $(
            $crate::key! { $(#[$doc])* pub struct $key = $op { $($field: $type),* } }
            $crate::parameters!(@kernel $key, $params $fields |$this, $p| $counts $launch);
        )+
    };
    (@block $(#[$meta:meta])* $params:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, $crate::bytemuck::Pod, $crate::bytemuck::Zeroable)]
        #[bytemuck(crate = "precast_core::bytemuck")]
        #[repr(C)]
        pub struct $params {
            $($(#[$doc])* pub $field: $type,)*
        }
    };
    (@fields $(#[$meta:meta])* $params:ident, $args:ident {
        $(
            $(#[$doc:meta])*
            $(operand $operand:ident($($of:tt)+))?
            $(optional $optional:ident($($if_there:tt)+))?
            $(scalar $scalar:ident($type:ty))?
            $(internal $internal:ident($hidden:ty))?;
        )*
    }) => {
        $crate::parameters!(@block $(#[$meta])* $params { $(
            $(#[$doc])*
            $($operand: $crate::abi::address,)?
            $($optional: $crate::abi::address,)?
            $($scalar: $type,)?
            $($internal: $hidden,)?
        )* });

        #[doc = concat!("Arguments of a launch, as [`", stringify!($params), "`] says.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $args<A> {
            $($(pub $operand: A,)? $(pub $optional: Option<A>,)? $(pub $scalar: $type,)?)*
        }

        impl<A: Into<$crate::abi::address>> From<$args<A>> for $params {
            #[allow(clippy::needless_update)] // Not every block has internal fields.
            fn from(args: $args<A>) -> Self {
                Self {
                    $(
                        $($operand: args.$operand.into(),)?
                        $($optional: args.$optional.map_or(0, Into::into),)?
                        $($scalar: args.$scalar,)?
                    )*
                    ..$crate::bytemuck::Zeroable::zeroed()
                }
            }
        }
    };
    (@kernel $key:ident, $params:ident {
        $(
            $(#[$doc:meta])*
            $(operand $operand:ident(
                $($access:ident $(if $cond:expr)?),+ => $format:expr, $elems:expr $(, $content:expr)?
            ))?
            $(optional $optional:ident(
                $when:ident if $is:expr => $its_format:expr, $its_elems:expr $(, $its_content:expr)?
            ))?
            $(scalar $scalar:ident($type:ty))?
            $(internal $internal:ident($hidden:ty))?;
        )*
    } |$this:ident, $p:ident| $counts:tt {
        $(before $tail:ident unless $whole:expr;)?
        $(flops = $flops:expr;)?
        $(bytes = $bytes:expr;)?
    }) => {
        #[allow(unused_variables)] // Not every expression names the key, the block and all counts.
        impl $crate::Kernel for $key {
            type Params = $params;

            fn parameters() -> &'static [$crate::Parameter] {
                &[$(
                    $($crate::parameters!(@row $params, $operand: $crate::abi::address),)?
                    $($crate::parameters!(@row $params, $optional: $crate::abi::address),)?
                    $($crate::parameters!(@row $params, $scalar: $type),)?
                )*]
            }

            $(fn params_bytes(&$this) -> usize {
                if $whole { size_of::<$params>() } else { std::mem::offset_of!($params, $tail) }
            })?

            fn operands(&$this, $p: &$params) -> Vec<$crate::Operand> {
                use $crate::operand::{Access, Operand};
                $crate::parameters!(@counts $counts);
                let mut operands = Vec::new();
                $(
                    $(
                        let operand = || $crate::operand!(Read $params, $operand: $format, $elems)$(.with($content))?;
                        $($(if $cond)? { operands.push(Operand { access: Access::$access, ..operand() }); })+
                    )?
                    $(if $is {
                        let operand = $crate::operand!($when $params, $optional: $its_format, $its_elems);
                        operands.push(operand$(.with($its_content))?);
                    })?
                )*
                operands
            }

            $(fn flops(&$this, $p: &$params) -> u64 {
                $crate::parameters!(@counts $counts);
                $flops
            })?

            $(fn bytes(&$this, $p: &$params) -> u64 {
                $crate::parameters!(@counts $counts);
                $bytes
            })?
        }
    };
    (@row $params:ident, $field:ident: $type:ty) => {
        $crate::Parameter {
            name: stringify!($field),
            offset: std::mem::offset_of!($params, $field) as u32,
            bytes: size_of::<$type>() as u32,
            align: align_of::<$type>() as u32,
        }
    };
    (@counts [$($count:ident = $number:expr),*]) => {
        $(let $count = u64::from($number);)*
    };
}

/// Lists every kernel of a program, in the order of operations.
#[macro_export]
macro_rules! operations {
    ($($key:ident),+ $(,)?) => {
        /// Every kernel, in the order of operations.
        pub const OPS: &[$crate::Op] = &[$($crate::Op::of::<$key>()),+];
    };
}
