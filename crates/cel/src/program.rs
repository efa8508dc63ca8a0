//! From the text of an expression to what can be evaluated.

use std::thread;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    operators,
};
use kube_cel::cel::objects::Key;
use kube_cel::cel::parser::Parser;

use crate::failure::Failure;
use crate::functions::{Function, Own};
use crate::source;
use crate::value::{Access, TYPES, type_named};

/// Most levels of a tree, as in cel-go.
const MAX_LEVELS: usize = 250;
/// Stack for parsing, of which only what is used takes memory: a level takes the parser up to a
/// dozen calls, 50 KiB where nothing is optimized.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// What expressions can refer to.
#[derive(Debug, Clone, Copy)]
pub struct Environment {
    /// The variables, in the order of their values.
    pub variables: &'static [&'static str],
    /// Functions beyond those that all environments have: `hasConditions`, `sets.contains`,
    /// `sets.equivalent`, `sets.intersects`.
    pub functions: &'static [&'static str],
    /// Longest text of an expression, in characters.
    pub max_characters: usize,
}

/// A compiled expression. Cheap enough to keep, not to make: see [`Program::compile`].
#[derive(Debug, Clone)]
pub struct Program {
    node: Node,
}

impl Program {
    /// Parses an expression, on a thread of its own and within the bounds on its size and depth.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the expression.
    pub fn compile(source: &str, environment: &Environment) -> Result<Self, Failure> {
        compile(source, environment).map(|node| Self { node })
    }

    /// Whether the expression refers to the variable at this place of its environment.
    pub fn refers_to(&self, variable: usize) -> bool {
        self.node.refers_to(variable)
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}

/// A part of an expression. Variables are positions on the evaluator's stack.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Literal(Value),
    Variable(usize),
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
pub(crate) struct Element {
    pub(crate) node: Node,
    /// Left out if it is an empty optional.
    pub(crate) optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
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
pub(crate) struct Loop {
    pub(crate) range: Node,
    pub(crate) start: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
    /// Position of what the loop gathers. The element is the one after.
    pub(crate) slot: usize,
}

impl Node {
    fn refers_to(&self, variable: usize) -> bool {
        let any = |nodes: &[Self]| nodes.iter().any(|node| node.refers_to(variable));
        match self {
            Self::Variable(at) => *at == variable,
            Self::Literal(_) | Self::Local(_) => false,
            Self::Select(of, ..)
            | Self::Not(of)
            | Self::NotFalse(of)
            | Self::Negate(of)
            | Self::Append(_, of) => of.refers_to(variable),
            Self::Index(of, _) | Self::And(of) | Self::Or(of) | Self::Binary(_, of) => {
                any(of.as_slice())
            }
            Self::Choose(of) => any(of.as_slice()),
            Self::List(elements) => elements.iter().any(|e| e.node.refers_to(variable)),
            Self::Map(entries) => entries
                .iter()
                .any(|(key, e)| key.refers_to(variable) || e.node.refers_to(variable)),
            Self::Loop(of) => {
                let parts = [&of.range, &of.start, &of.condition, &of.step, &of.result];
                parts.iter().any(|node| node.refers_to(variable))
            }
            Self::Own(_, arguments) | Self::Call(_, arguments) => any(arguments),
            Self::MapOptional(_, of, _, outcome) => {
                of.refers_to(variable) || outcome.refers_to(variable)
            }
        }
    }
}

fn compile(source: &str, environment: &Environment) -> Result<Node, Failure> {
    let source = source::check(source, environment.max_characters)?;
    // The parser recurses along operators and fields, and panics on some mistakes.
    let broken = || Failure::Broken("parse".into());
    thread::scope(|threads| {
        let parser = thread::Builder::new()
            .name("cel-parser".into())
            .stack_size(PARSER_STACK_BYTES)
            .spawn_scoped(threads, || parse(&source, environment));
        match parser.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(_)) | Err(_) => Err(broken()),
        }
    })
}

fn parse(source: &str, environment: &Environment) -> Result<Node, Failure> {
    let parsed = Parser::new()
        .enable_optional_syntax(true)
        .max_recursion_depth(source::MAX_DEPTH)
        .parse(source)
        // Upstream's lines of source are indented.
        .map_err(|errors| Failure::Error(errors.to_string().replace("\n| ", "\n | ")))?;
    let mut scope = Scope {
        environment,
        names: Vec::new(),
        level: 0,
    };
    scope.node(&parsed)
}

pub(crate) fn error(what: &str) -> Failure {
    Failure::Error(format!("ERROR: <input>: {what}"))
}

fn undeclared(name: &str) -> Failure {
    error(&format!(
        "undeclared reference to '{name}' (in container '')"
    ))
}

/// The variables that can be seen, innermost last.
struct Scope<'a> {
    environment: &'a Environment,
    names: Vec<String>,
    /// How deep the node at hand is.
    level: usize,
}

impl Scope<'_> {
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
            return Err(source::too_deep());
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
            _ => {
                let mut variables = self.environment.variables.iter();
                let variable = variables.position(|known| *known == name);
                let named_type = || {
                    TYPES
                        .contains(&name)
                        .then(|| Node::Literal(type_named(name)))
                };
                variable.map(Node::Variable).or_else(named_type)
            }
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
                if let Some(function) =
                    Function::find(self.environment, &name, false, call.args.len())?
                {
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
        let function = Function::find(
            self.environment,
            &call.func_name,
            call.target.is_some(),
            arguments.len(),
        )?
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
