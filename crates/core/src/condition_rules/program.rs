//! From the text of an expression to what can be evaluated.

use std::thread;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    operators,
};
use kube_cel::cel::objects::Key;
use kube_cel::cel::parser::Parser;

use super::failure::Failure;
use super::functions::{Function, Own};
use super::value::{Access, TYPES, type_named};

/// Longest text that is parsed, in bytes.
const MAX_SOURCE_BYTES: usize = 16 << 10;
/// Most signs in a text that can be one level of a tree each. Those in strings count, since telling
/// strings apart takes a parser.
const MAX_SIGNS: usize = 1_000;
/// Most levels of a tree, as in cel-go.
const MAX_LEVELS: usize = 250;
/// Stack for parsing, of which only what is used takes memory: a level takes the parser up to a
/// dozen calls, 50 KiB where nothing is optimized.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// A part of an expression. Variables are positions on the evaluator's stack.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Literal(Value),
    Object,
    Result,
    Local(usize),
    Select(Box<Self>, Key, Access),
    Index(Box<[Self; 2]>, Access),
    Not(Box<Self>),
    /// False only for false: an error does not end a loop that a later element may decide.
    NotFalse(Box<Self>),
    Negate(Box<Self>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Choose(Box<[Self; 3]>),
    Binary(Operator, Box<[Self; 2]>),
    List(Vec<Element>),
    Map(Vec<(Self, Element)>),
    Loop(Box<Loop>),
    /// Adds an element to the list of the loop.
    Append(usize, Box<Self>),
    Own(Own, Vec<Self>),
    Call(Function, Vec<Self>),
    /// `optMap` and `optFlatMap`: whether the outcome becomes an optional, the optional, the
    /// variable, the outcome.
    MapOptional(bool, Box<Self>, usize, Box<Self>),
}

/// An element of a list or a map that is written down.
#[derive(Debug, Clone)]
pub(super) struct Element {
    pub(super) node: Node,
    /// Left out if it is an empty optional.
    pub(super) optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// What a macro (`all`, `exists`, `map`, …) stands for.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    pub(super) range: Node,
    pub(super) start: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
    /// Position of what the loop gathers. The element is the one after.
    pub(super) slot: usize,
}

/// Parses an expression. Only that of a message knows `result`.
pub(super) fn compile(source: &str, of_message: bool) -> Result<Node, Failure> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(error(&format!(
            "expression code point size exceeds limit: size: {}, limit {MAX_SOURCE_BYTES}",
            source.len()
        )));
    }
    let signs = |c: &u8| b"([{+-*/%<>=!.?".contains(c);
    if source.bytes().filter(signs).count() > MAX_SIGNS {
        return Err(too_deep());
    }
    // The parser recurses without a limit along operators and fields, and panics on some mistakes.
    let broken = || Failure::Broken("parse".into());
    thread::scope(|threads| {
        let parser = thread::Builder::new()
            .name("cel-parser".into())
            .stack_size(PARSER_STACK_BYTES)
            .spawn_scoped(threads, || parse(source, of_message));
        match parser.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(_)) | Err(_) => Err(broken()),
        }
    })
}

fn parse(source: &str, of_message: bool) -> Result<Node, Failure> {
    let parsed = Parser::new()
        .enable_optional_syntax(true)
        .parse(source)
        // Upstream's lines of source are indented.
        .map_err(|errors| Failure::Error(errors.to_string().replace("\n| ", "\n | ")))?;
    let mut scope = Scope {
        of_message,
        names: Vec::new(),
        level: 0,
    };
    scope.node(&parsed)
}

fn too_deep() -> Failure {
    error("expression recursion limit exceeded")
}

fn error(what: &str) -> Failure {
    Failure::Error(format!("ERROR: <input>: {what}"))
}

fn undeclared(name: &str) -> Failure {
    error(&format!(
        "undeclared reference to '{name}' (in container '')"
    ))
}

/// The variables that can be seen, innermost last.
struct Scope {
    of_message: bool,
    names: Vec<String>,
    /// How deep the node at hand is.
    level: usize,
}

impl Scope {
    fn boxed(&mut self, expr: &IdedExpr) -> Result<Box<Node>, Failure> {
        self.node(expr).map(Box::new)
    }

    fn pair(&mut self, args: &[IdedExpr]) -> Result<Box<[Node; 2]>, Failure> {
        match args {
            [a, b] => Ok(Box::new([self.node(a)?, self.node(b)?])),
            _ => Err(error("an operator takes two values")),
        }
    }

    fn nodes<'a>(
        &mut self,
        exprs: impl IntoIterator<Item = &'a IdedExpr>,
    ) -> Result<Vec<Node>, Failure> {
        exprs.into_iter().map(|expr| self.node(expr)).collect()
    }

    fn node(&mut self, expr: &IdedExpr) -> Result<Node, Failure> {
        if self.level == MAX_LEVELS {
            return Err(too_deep());
        }
        self.level += 1;
        let node = self.node_of(expr);
        self.level -= 1;
        node
    }

    fn node_of(&mut self, expr: &IdedExpr) -> Result<Node, Failure> {
        Ok(match &expr.expr {
            Expr::Literal(literal) => Node::Literal(literal_value(literal)),
            Expr::Ident(name) => self.variable(name).ok_or_else(|| undeclared(name))?,
            Expr::Select(select) => {
                if let Some(known) = type_path(expr) {
                    return Ok(Node::Literal(type_named(known)));
                }
                let access = if select.test {
                    Access::Has
                } else {
                    Access::Get
                };
                let field = Key::from(select.field.as_str());
                Node::Select(self.boxed(&select.operand)?, field, access)
            }
            Expr::List(list) => Node::List(self.elements(list)?),
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| self.entry(entry));
                Node::Map(entries.collect::<Result<_, _>>()?)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension)?,
            Expr::Call(call) => self.call(call)?,
            Expr::Struct(message) => return Err(undeclared(&message.type_name)),
            Expr::Unspecified => return Err(error("expression is empty")),
        })
    }

    fn variable(&self, name: &str) -> Option<Node> {
        let local = self.names.iter().rposition(|known| known == name);
        match name {
            _ if local.is_some() => local.map(Node::Local),
            "object" => Some(Node::Object),
            "result" if self.of_message => Some(Node::Result),
            _ => TYPES
                .contains(&name)
                .then(|| Node::Literal(type_named(name))),
        }
    }

    fn elements(&mut self, list: &ListExpr) -> Result<Vec<Element>, Failure> {
        let element = |(at, expr)| {
            Ok(Element {
                node: self.node(expr)?,
                optional: list.optional_indices.contains(&at),
            })
        };
        list.elements.iter().enumerate().map(element).collect()
    }

    fn entry(&mut self, entry: &IdedEntryExpr) -> Result<(Node, Element), Failure> {
        match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                let element = Element {
                    node: self.node(&entry.value)?,
                    optional: entry.optional,
                };
                Ok((self.node(&entry.key)?, element))
            }
            EntryExpr::StructField(field) => Err(undeclared(&field.field)),
        }
    }

    fn comprehension(&mut self, of: &ComprehensionExpr) -> Result<Node, Failure> {
        let range = self.node(&of.iter_range)?;
        let start = self.node(&of.accu_init)?;
        let slot = self.names.len();
        self.names.push(of.accu_var.clone());
        self.names.push(of.iter_var.clone());
        let inner = (|| {
            Ok(Loop {
                range,
                start,
                condition: self.node(&of.loop_cond)?,
                step: self.step(&of.loop_step, slot)?,
                result: self.node(&of.result)?,
                slot,
            })
        })();
        self.names.truncate(slot);
        inner.map(|inner| Node::Loop(Box::new(inner)))
    }

    /// A step that adds to the list of the loop in place: what the loop has gathered would be
    /// copied for each element otherwise.
    fn step(&mut self, expr: &IdedExpr, slot: usize) -> Result<Node, Failure> {
        let Expr::Call(call) = &expr.expr else {
            return self.node(expr);
        };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, then, otherwise]) => Ok(Node::Choose(Box::new([
                self.node(condition)?,
                self.step(then, slot)?,
                self.node(otherwise)?,
            ]))),
            (operators::ADD, [gathered, added]) => match (&gathered.expr, &added.expr) {
                // No expression can have the name of what a loop gathers in it.
                (Expr::Ident(name), Expr::List(list))
                    if *name == self.names[slot] && list.elements.len() == 1 =>
                {
                    Ok(Node::Append(slot, self.boxed(&list.elements[0])?))
                }
                _ => self.node(expr),
            },
            _ => self.node(expr),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Result<Node, Failure> {
        if call.target.is_none()
            && let Some(node) = self.operator(call)?
        {
            return Ok(node);
        }
        if let Some(target) = &call.target {
            if let Some(node) = self.map_optional(target, call)? {
                return Ok(node);
            }
            // `optional.of(x)` looks like a call on a variable.
            if let Expr::Ident(prefix) = &target.expr
                && self
                    .variable(prefix)
                    .is_none_or(|node| matches!(node, Node::Literal(_)))
            {
                let name = format!("{prefix}.{}", call.func_name);
                if let Some(function) = Function::find(&name, false, call.args.len())? {
                    return Ok(calling(function, self.nodes(&call.args)?));
                }
            }
        }
        let arguments: Vec<&IdedExpr> = call
            .target
            .as_deref()
            .into_iter()
            .chain(&call.args)
            .collect();
        let function = Function::find(&call.func_name, call.target.is_some(), arguments.len())?
            .ok_or_else(|| undeclared(&call.func_name))?;
        Ok(calling(function, self.nodes(arguments)?))
    }

    fn operator(&mut self, call: &CallExpr) -> Result<Option<Node>, Failure> {
        let operator = match call.func_name.as_str() {
            operators::ADD => Operator::Add,
            operators::SUBSTRACT => Operator::Subtract,
            operators::MULTIPLY => Operator::Multiply,
            operators::DIVIDE => Operator::Divide,
            operators::MODULO => Operator::Modulo,
            operators::EQUALS => Operator::Equal,
            operators::NOT_EQUALS => Operator::NotEqual,
            operators::LESS => Operator::Less,
            operators::LESS_EQUALS => Operator::LessOrEqual,
            operators::GREATER => Operator::Greater,
            operators::GREATER_EQUALS => Operator::GreaterOrEqual,
            operators::IN => Operator::In,
            other => return self.special_operator(other, &call.args),
        };
        Ok(Some(Node::Binary(operator, self.pair(&call.args)?)))
    }

    fn special_operator(&mut self, name: &str, args: &[IdedExpr]) -> Result<Option<Node>, Failure> {
        Ok(Some(match (name, args) {
            (operators::LOGICAL_AND, _) => Node::And(self.pair(args)?),
            (operators::LOGICAL_OR, _) => Node::Or(self.pair(args)?),
            (operators::LOGICAL_NOT, [of]) => Node::Not(self.boxed(of)?),
            (operators::NOT_STRICTLY_FALSE, [of]) => Node::NotFalse(self.boxed(of)?),
            (operators::NEGATE, [of]) => Node::Negate(self.boxed(of)?),
            (operators::CONDITIONAL, [condition, then, otherwise]) => Node::Choose(Box::new([
                self.node(condition)?,
                self.node(then)?,
                self.node(otherwise)?,
            ])),
            (operators::INDEX, _) => Node::Index(self.pair(args)?, Access::Get),
            (operators::OPT_INDEX, _) => Node::Index(self.pair(args)?, Access::Optional),
            (operators::OPT_SELECT, [of, field]) => match &field.expr {
                Expr::Literal(LiteralValue::String(name)) => {
                    let field = Key::from(name.inner());
                    Node::Select(self.boxed(of)?, field, Access::Optional)
                }
                _ => return Err(error("unsupported optional field selection")),
            },
            _ => return Ok(None),
        }))
    }

    fn map_optional(&mut self, of: &IdedExpr, call: &CallExpr) -> Result<Option<Node>, Failure> {
        let flat = match call.func_name.as_str() {
            "optMap" => false,
            "optFlatMap" => true,
            _ => return Ok(None),
        };
        let [variable, outcome] = call.args.as_slice() else {
            return Ok(None);
        };
        let Expr::Ident(name) = &variable.expr else {
            return Err(error(&format!(
                "{}() variable name must be a simple identifier",
                call.func_name
            )));
        };
        let of = self.boxed(of)?;
        let slot = self.names.len();
        self.names.push(name.clone());
        let outcome = self.boxed(outcome);
        self.names.truncate(slot);
        Ok(Some(Node::MapOptional(!flat, of, slot, outcome?)))
    }
}

fn calling(function: Function, arguments: Vec<Node>) -> Node {
    match function {
        Function::Own(own) => Node::Own(own, arguments),
        library @ Function::Library(_) => Node::Call(library, arguments),
    }
}

/// `google.protobuf.Timestamp` and the like.
fn type_path(expr: &IdedExpr) -> Option<&'static str> {
    fn path(expr: &IdedExpr) -> Option<String> {
        match &expr.expr {
            Expr::Ident(name) => Some(name.clone()),
            Expr::Select(select) if !select.test => {
                Some(format!("{}.{}", path(&select.operand)?, select.field))
            }
            _ => None,
        }
    }
    let Expr::Select(select) = &expr.expr else {
        return None;
    };
    if select.test || !matches!(select.field.as_str(), "Duration" | "Timestamp") {
        return None;
    }
    let path = path(expr)?;
    TYPES.iter().copied().find(|known| *known == path)
}

fn literal_value(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(bool) => Value::Bool(*bool.inner()),
        LiteralValue::Bytes(bytes) => bytes.inner().to_vec().into(),
        LiteralValue::Double(double) => Value::Float(*double.inner()),
        LiteralValue::Int(int) => Value::Int(*int.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => text.inner().into(),
        LiteralValue::UInt(uint) => Value::UInt(*uint.inner()),
    }
}
