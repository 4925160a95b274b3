//! Decoded instructions: register classes and types are settled when the text is read, not when it runs.

/// A register of the 32-bit class (`.b32`, `.f32`, `.b16` widened).
pub type R32 = u16;
/// A register of the 64-bit class.
pub type R64 = u16;
/// A predicate register.
pub type P = u16;

/// A 32-bit source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum S32 {
    Reg(R32),
    Value(u32),
    Special(Special),
}

/// A 64-bit source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum S64 {
    Reg(R64),
    Value(u64),
}

/// A predicate source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SP {
    Reg(P),
    Value(bool),
}

/// Where a thread stands in its launch; the number is the dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Special {
    Thread(u8),
    Block(u8),
    BlockSize(u8),
    GridSize(u8),
}

/// `[register + offset]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Address {
    pub base: S64,
    pub offset: i64,
}

/// `[register + offset]` in shared memory, where addresses are 32 bits wide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedAddress {
    pub base: S32,
    pub offset: i32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Integer {
    Add,
    Sub,
    Mul,
    DivSigned,
    DivUnsigned,
    RemSigned,
    RemUnsigned,
    MaxSigned,
    MaxUnsigned,
    MinSigned,
    MinUnsigned,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRightSigned,
    ShiftRightUnsigned,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Float {
    Add,
    Sub,
    Mul,
    Max,
    Min,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unary {
    Move,
    Not,
    NegateInteger,
    NegateFloat,
    AbsoluteFloat,
    Exp2,
    Log2,
    Reciprocal,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// The float comparisons that hold when an operand is NaN.
    Ltu,
    Leu,
    Gtu,
    Geu,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Logic {
    And,
    Or,
    Xor,
}

/// The element type of a tensor core instruction or a conversion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Half {
    F16,
    Bf16,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    Integer32 {
        f: Integer,
        d: R32,
        a: S32,
        b: S32,
    },
    Integer64 {
        f: Integer,
        d: R64,
        a: S64,
        b: S64,
    },
    /// The count is a 32-bit operand, whatever is shifted.
    Shift64 {
        f: Integer,
        d: R64,
        a: S64,
        b: S32,
    },
    MultiplyAdd32 {
        d: R32,
        a: S32,
        b: S32,
        c: S32,
    },
    MultiplyAdd64 {
        d: R64,
        a: S64,
        b: S64,
        c: S64,
    },
    MultiplyWide {
        signed: bool,
        d: R64,
        a: S32,
        b: S32,
    },
    MultiplyAddWide {
        signed: bool,
        d: R64,
        a: S32,
        b: S32,
        c: S64,
    },
    Insert {
        d: R32,
        from: S32,
        to: S32,
        position: S32,
        length: S32,
    },
    Float {
        f: Float,
        d: R32,
        a: S32,
        b: S32,
    },
    FusedMultiplyAdd {
        d: R32,
        a: S32,
        b: S32,
        c: S32,
    },
    Unary32 {
        f: Unary,
        d: R32,
        a: S32,
    },
    Move64 {
        d: R64,
        a: S64,
    },
    SignExtend {
        d: R64,
        a: S32,
    },
    ZeroExtend {
        d: R64,
        a: S32,
    },
    Truncate {
        d: R32,
        a: S64,
    },
    /// Two floats rounded to one register: `high` in the upper half.
    Pack {
        half: Half,
        d: R32,
        high: S32,
        low: S32,
    },
    CompareSigned {
        f: Compare,
        d: P,
        a: S32,
        b: S32,
    },
    CompareUnsigned {
        f: Compare,
        d: P,
        a: S32,
        b: S32,
    },
    CompareFloat {
        f: Compare,
        d: P,
        a: S32,
        b: S32,
    },
    CompareSigned64 {
        f: Compare,
        d: P,
        a: S64,
        b: S64,
    },
    CompareUnsigned64 {
        f: Compare,
        d: P,
        a: S64,
        b: S64,
    },
    Logic {
        f: Logic,
        d: P,
        a: SP,
        b: SP,
    },
    MovePredicate {
        d: P,
        a: SP,
    },
    NotPredicate {
        d: P,
        a: SP,
    },
    Select32 {
        d: R32,
        a: S32,
        b: S32,
        p: P,
    },
    Select64 {
        d: R64,
        a: S64,
        b: S64,
        p: P,
    },
    Parameter32 {
        d: R32,
        offset: usize,
    },
    Parameter64 {
        d: R64,
        offset: usize,
    },
    Load32 {
        d: R32,
        from: Address,
    },
    Load64 {
        d: R64,
        from: Address,
    },
    Store32 {
        to: Address,
        a: S32,
    },
    Store64 {
        to: Address,
        a: S64,
    },
    CopyAsync {
        to: SharedAddress,
        from: Address,
        bytes: S32,
    },
    CopyCommit,
    /// Waits until at most this many groups are in flight.
    CopyWait {
        groups: u32,
    },
    LoadMatrices {
        transposed: bool,
        d: [R32; 4],
        from: SharedAddress,
    },
    MatrixMultiply {
        half: Half,
        d: [R32; 4],
        a: [R32; 4],
        b: [R32; 2],
        c: [R32; 4],
    },
    /// The butterfly: lane `l` receives from lane `l ^ distance`.
    Shuffle {
        d: R32,
        valid: Option<P>,
        a: S32,
        distance: S32,
        clamp: S32,
        members: S32,
    },
    Barrier,
    Branch {
        target: u32,
    },
    Exit,
}

impl Op {
    /// Whether all lanes of the warp execute it together.
    pub fn is_collective(&self) -> bool {
        matches!(self, Op::LoadMatrices { .. } | Op::MatrixMultiply { .. } | Op::Shuffle { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instruction {
    /// From 1, in the PTX text.
    pub line: u32,
    /// Executed by the lanes where the predicate equals the second member.
    pub guard: Option<(P, bool)>,
    pub op: Op,
}
