//! From tokens to the tree, by operator precedence with a stack of its own (rule expression-2).
//!
//! Knows: tokens, precedence, limits. Must not know: what an expression evaluates to.
//!
//! Invariants: no recursion, however deep an expression is nested; a tree within the limits, or the first error with
//! its place.

use crate::expression::{Expression, Kind, Node, NodeId};
use crate::operation::{Binary, Precedence, Prefix};
use crate::token::{Dialect, Lexer, Placed, Token};
use crate::value::{ScalarType, Value, beginning_of};
use crate::{Error, Limits};
use std::sync::Arc;

/// What waits for its operand, or for the end of it.
enum Waiting {
    /// `(`, until `)`.
    Group,
    /// `hash(`, until `)`.
    Hash,
    /// `list[`, until `]`; with the list.
    Subscript(NodeId),
    /// `(type)`, until the end of a postfix expression.
    Cast(ScalarType),
    /// `!` or `~`, until the end of a primary.
    Prefix(Prefix),
    /// A binary operator with its left operand, until an operator that binds no tighter.
    Binary(Binary, NodeId),
}

struct Frame {
    waiting: Waiting,
    offset: u32,
}

struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    limits: Limits,
    nodes: Vec<Node>,
    frames: Vec<Frame>,
    /// How many frames are brackets or casts.
    depth: usize,
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// The text is no expression, or longer or deeper than the limits. An empty text is no expression: a caller for
    /// whom it has a meaning does not parse it.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self, Error> {
        Self::read(text, Dialect::Expressions, limits)
    }

    /// Reads an expression in one of the languages.
    ///
    /// # Errors
    /// As [`Expression::parse`].
    pub(crate) fn read(text: &str, dialect: Dialect, limits: &Limits) -> Result<Self, Error> {
        if text.len() > limits.length || u32::try_from(text.len()).is_err() {
            let message = format!("the expression has {} octets, more than {}", text.len(), limits.length);
            return Err(Error { message, offset: 0 });
        }
        let lexer = Lexer::new(text, dialect);
        let mut parser = Parser { text, lexer, limits: *limits, nodes: Vec::new(), frames: Vec::new(), depth: 0 };
        parser.run()?;
        // It may be kept for long.
        parser.nodes.shrink_to_fit();
        Ok(Self { source: Arc::from(text), nodes: parser.nodes })
    }
}

impl<'t> Parser<'t> {
    fn run(&mut self) -> Result<(), Error> {
        loop {
            self.operand()?;
            self.count()?;
            // What follows an operand: brackets that close, a subscript, then an operator or the end.
            loop {
                let Some(placed) = self.lexer.next()? else { return self.finish() };
                match &placed.token {
                    Token::CloseGroup => self.close_group(&placed)?,
                    Token::CloseSubscript => self.close_subscript(&placed)?,
                    Token::OpenSubscript => {
                        self.open_subscript(&placed)?;
                        break;
                    }
                    Token::Binary(operator) => {
                        self.binary(*operator, &placed)?;
                        break;
                    }
                    _ => return Err(self.unexpected(&placed, "an operator or the end")),
                }
            }
        }
    }

    /// Reads up to and including the next word, literal or call.
    fn operand(&mut self) -> Result<(), Error> {
        loop {
            let Some(placed) = self.lexer.operand()? else {
                return Err(Error { message: "an operand is missing at the end".to_owned(), offset: self.text.len() });
            };
            let kind = match placed.token {
                Token::OpenGroup => {
                    match self.cast_target()? {
                        Some(_) if self.after_prefix() => {
                            return Err(self.unexpected(&placed, "an operand without cast"));
                        }
                        Some(target) => self.open(Waiting::Cast(target), &placed)?,
                        None => self.open(Waiting::Group, &placed)?,
                    }
                    continue;
                }
                Token::Hash if self.opens_call()? => {
                    self.open(Waiting::Hash, &placed)?;
                    continue;
                }
                Token::Hash if self.lexer.dialect() == Dialect::Expressions => {
                    return Err(Error { message: "hash without (".to_owned(), offset: placed.offset });
                }
                Token::Prefix(_) if self.after_prefix() => return Err(self.unexpected(&placed, "an operand")),
                Token::Prefix(operator) => {
                    self.frames.push(Frame { waiting: Waiting::Prefix(operator), offset: placed.offset as u32 });
                    continue;
                }
                // No keyword of SPL: the name of an attribute.
                Token::Word(_) | Token::Hash => {
                    Kind::Word(placed.offset as u32..(placed.offset + placed.written.len()) as u32)
                }
                Token::Intrinsic(intrinsic) => Kind::Intrinsic(intrinsic),
                Token::Integer(integer) => Kind::Literal(Value::Int64(integer)),
                Token::Float(float) => Kind::Literal(Value::Float64(float)),
                Token::Text(text) => Kind::Literal(Value::Rstring(text.into())),
                _ => return Err(self.unexpected(&placed, "an operand")),
            };
            self.push(kind, placed.offset as u32);
            self.close_prefix();
            return Ok(());
        }
    }

    /// A parenthesis right after `hash` makes a call of it.
    fn opens_call(&mut self) -> Result<bool, Error> {
        let mut ahead = self.lexer;
        let opens = matches!(ahead.next()?, Some(Placed { token: Token::OpenGroup, .. }));
        if opens {
            self.lexer = ahead;
        }
        Ok(opens)
    }

    /// `type)` right after a parenthesis makes a cast of it.
    fn cast_target(&mut self) -> Result<Option<ScalarType>, Error> {
        let mut ahead = self.lexer;
        let Some(Placed { token: Token::Type(target), offset, .. }) = ahead.next()? else { return Ok(None) };
        match ahead.next()? {
            Some(Placed { token: Token::CloseGroup, .. }) => {
                self.lexer = ahead;
                Ok(Some(target))
            }
            _ => Err(Error { message: format!("{} is the name of a type", target.word()), offset }),
        }
    }

    fn open(&mut self, waiting: Waiting, placed: &Placed<'_>) -> Result<(), Error> {
        if self.depth >= self.limits.depth {
            let message = format!("more than {} levels of parentheses", self.limits.depth);
            return Err(Error { message, offset: placed.offset });
        }
        self.depth += 1;
        self.frames.push(Frame { waiting, offset: placed.offset as u32 });
        Ok(())
    }

    fn after_prefix(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { waiting: Waiting::Prefix(_), .. }))
    }

    fn push(&mut self, kind: Kind, offset: u32) {
        self.nodes.push(Node { kind, offset });
    }

    /// Refuses what has too many operands and operators. There are few more than are counted: one is yet to come for
    /// each bracket, prefix and level of precedence that is open.
    fn count(&self) -> Result<(), Error> {
        if self.nodes.len() <= self.limits.nodes {
            return Ok(());
        }
        let offset = self.nodes.last().map_or(0, |node| node.offset as usize);
        Err(Error { message: format!("more than {} operands and operators", self.limits.nodes), offset })
    }

    fn last(&self) -> NodeId {
        NodeId::before(self.nodes.len())
    }

    /// A primary is complete: `!` or `~` before it takes it.
    fn close_prefix(&mut self) {
        if let Some(Frame { waiting: Waiting::Prefix(operator), offset }) =
            self.frames.pop_if(|frame| matches!(frame.waiting, Waiting::Prefix(_)))
        {
            self.push(Kind::Prefix { operator, operand: self.last() }, offset);
        }
    }

    /// Completes casts and the operators that bind tighter than `precedence`, or as tight (all, without one).
    fn reduce(&mut self, precedence: Option<Precedence>) {
        while let Some(frame) = self.frames.pop_if(|frame| match &frame.waiting {
            Waiting::Cast(_) => true,
            Waiting::Binary(operator, _) => precedence.is_none_or(|limit| operator.precedence() >= limit),
            _ => false,
        }) {
            let operand = self.last();
            match frame.waiting {
                Waiting::Cast(target) => {
                    self.depth -= 1;
                    self.push(Kind::Cast { target, operand }, frame.offset);
                }
                Waiting::Binary(operator, left) => {
                    self.push(Kind::Binary { operator, left, right: operand }, frame.offset);
                }
                Waiting::Group | Waiting::Hash | Waiting::Subscript(_) | Waiting::Prefix(_) => {}
            }
        }
    }

    fn binary(&mut self, operator: Binary, placed: &Placed<'_>) -> Result<(), Error> {
        let precedence = operator.precedence();
        let in_subscript = self.frames.iter().rev().find_map(|frame| match frame.waiting {
            Waiting::Group | Waiting::Hash => Some(false),
            Waiting::Subscript(_) => Some(true),
            _ => None,
        });
        if in_subscript == Some(true) && precedence < Precedence::Additive {
            return Err(self.unexpected(placed, "+, -, *, /, % or ]"));
        }
        if !precedence.chains() {
            let before = self.frames.iter().rev().find_map(|frame| match &frame.waiting {
                Waiting::Cast(_) | Waiting::Prefix(_) => None,
                Waiting::Binary(before, _) if before.precedence() > precedence => None,
                Waiting::Binary(before, _) => Some(before.precedence() == precedence),
                Waiting::Group | Waiting::Hash | Waiting::Subscript(_) => Some(false),
            });
            if before == Some(true) {
                let message = format!("{} cannot follow a comparison or membership test of its kind", placed.written);
                return Err(Error { message, offset: placed.offset });
            }
        }
        self.reduce(Some(precedence));
        let left = self.last();
        self.frames.push(Frame { waiting: Waiting::Binary(operator, left), offset: placed.offset as u32 });
        Ok(())
    }

    fn close_group(&mut self, placed: &Placed<'_>) -> Result<(), Error> {
        self.reduce(None);
        let inner = self.last();
        match self.frames.pop_if(|frame| matches!(frame.waiting, Waiting::Group | Waiting::Hash)) {
            Some(Frame { waiting: Waiting::Hash, offset }) => self.push(Kind::Hash(inner), offset),
            Some(Frame { offset, .. }) => self.push(Kind::Group(inner), offset),
            None => return Err(self.unexpected(placed, "an operator or the end")),
        }
        self.depth -= 1;
        self.close_prefix();
        Ok(())
    }

    fn open_subscript(&mut self, placed: &Placed<'_>) -> Result<(), Error> {
        let list = self.last();
        if matches!(self.nodes.last(), Some(Node { kind: Kind::Subscript { .. }, .. })) {
            return Err(Error { message: "an element has no elements".to_owned(), offset: placed.offset });
        }
        self.open(Waiting::Subscript(list), placed)
    }

    fn close_subscript(&mut self, placed: &Placed<'_>) -> Result<(), Error> {
        self.reduce(None);
        let index = self.last();
        match self.frames.pop_if(|frame| matches!(frame.waiting, Waiting::Subscript(_))) {
            Some(Frame { waiting: Waiting::Subscript(list), offset }) => {
                self.depth -= 1;
                self.push(Kind::Subscript { list, index }, offset);
                Ok(())
            }
            _ => Err(self.unexpected(placed, "an operator or the end")),
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.reduce(None);
        match self.frames.last() {
            None => self.count(),
            Some(Frame { waiting: Waiting::Subscript(_), offset }) => {
                Err(Error { message: "[ is not closed".to_owned(), offset: *offset as usize })
            }
            Some(Frame { offset, .. }) => {
                Err(Error { message: "( is not closed".to_owned(), offset: *offset as usize })
            }
        }
    }

    fn unexpected(&self, placed: &Placed<'_>, expected: &str) -> Error {
        let hint = match &placed.token {
            Token::Integer(integer) if integer.is_negative() => "; a sign belongs to its number: write `- 1`, not `-1`",
            Token::Type(_) | Token::Hash => "; the word is reserved",
            _ => "",
        };
        let message = format!("{expected} is expected instead of {}{hint}", beginning_of(placed.written));
        Error { message, offset: placed.offset }
    }
}
