//! One source file: its functions, its size, its place in the module tree, and the modules that it uses.
//!
//! Files are found through `mod` items, from the root file of each target. Items behind `#[cfg(test)]` are
//! left out.

use super::crates::Crate;
use proc_macro2::{LineColumn, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// Path relative to the repository.
    pub(crate) path: String,
    /// Name of its crate.
    pub(crate) of: String,
    /// Root file of its target.
    pub(crate) target: String,
    /// Its module, from the target's root; empty for the root.
    pub(crate) module: Vec<String>,
    /// Modules that it declares.
    pub(crate) children: BTreeSet<String>,
    pub(crate) functions: Vec<Function>,
    /// Lines of code, without comments, blank lines and tests.
    pub(crate) lines: usize,
    /// Paths that it uses, from the target's root: in imports and expressions.
    pub(crate) paths: BTreeSet<Vec<String>>,
    /// Names that the module imports, under which others can use the same items, with their paths.
    pub(crate) exports: Vec<(String, Vec<String>)>,
    /// Text of the file, searched for wide lines.
    pub(crate) text: String,
    /// Lines with a string literal.
    pub(crate) literals: BTreeSet<usize>,
    /// Names of types and traits, also those that a macro defines.
    pub(crate) types: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: usize,
    /// Number of parameters without `self`.
    pub(crate) parameters: usize,
}

/// All files of a crate's targets, without tests.
pub(crate) fn read(root: &Path, of: &Crate) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for file in &of.roots {
        let target = relative(root, file);
        let folder = file.parent().unwrap_or(root).to_owned();
        let mut open = vec![(file.clone(), folder, Vec::new())];
        while let Some((path, folder, module)) = open.pop() {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let name = relative(root, &path);
            let mut source = Source {
                path: name,
                of: of.name.clone(),
                target: target.clone(),
                module,
                text,
                ..Source::default()
            };
            for (name, file) in parse(&mut source)? {
                let (path, folder) = locate(&folder, &path, &name, file)?;
                let module = source.module.iter().cloned().chain([name]).collect();
                open.push((path, folder, module));
            }
            sources.push(source);
        }
    }
    Ok(sources)
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// File of a module that `within` declares, and the folder of that module's own modules.
fn locate(
    folder: &Path,
    within: &Path,
    name: &str,
    file: Option<String>,
) -> Result<(PathBuf, PathBuf), String> {
    if let Some(file) = file {
        let path = within.parent().unwrap_or(folder).join(file);
        let own = path.parent().unwrap_or(folder).to_owned();
        return Ok((path, own));
    }
    let own = folder.join(name);
    let candidates = [folder.join(format!("{name}.rs")), own.join("mod.rs")];
    let found = candidates.into_iter().find(|path| path.exists());
    found.map(|path| (path, own)).ok_or_else(|| format!("{}: `mod {name}` has no file", within.display()))
}

/// Parses a source's text; returns the modules that it declares in other files, with the file's name if an
/// attribute gives one.
fn parse(source: &mut Source) -> Result<Vec<(String, Option<String>)>, String> {
    let file = syn::parse_file(&source.text).map_err(|error| format!("{}: {error}", source.path))?;
    let tokens: TokenStream = source.text.parse().map_err(|error| format!("{}: {error}", source.path))?;
    let mut reader = Reader { at: source.module.clone(), depth: source.module.len(), ..Reader::default() };
    // Children first, because paths can begin with them.
    for item in file.items.iter().filter(|item| !is_test(item)) {
        if let syn::Item::Mod(module) = item
            && !only_exports(module)
        {
            reader.children.insert(module.ident.to_string());
        }
    }
    reader.visit_file(&file);
    let mut code = Code::default();
    code.read(tokens);
    let tested = |line: &usize| reader.tests.iter().any(|(first, last)| (first..=last).contains(&line));
    source.lines = code.lines.iter().filter(|line| !tested(line)).count();
    source.literals = code.literals;
    let types = code.types.into_iter().filter(|(_, line)| !tested(line));
    source.types = types.map(|(name, _)| name).collect();
    source.children = reader.children;
    source.functions = reader.functions;
    source.paths = reader.paths;
    source.exports = reader.exports;
    Ok(reader.files)
}

/// Returns true if a module only names items of other modules.
fn only_exports(module: &syn::ItemMod) -> bool {
    let items = module.content.as_ref().map(|(_, items)| items);
    items.is_some_and(|items| items.iter().all(|item| matches!(item, syn::Item::Use(_))))
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(i) => &i.attrs,
        syn::Item::Enum(i) => &i.attrs,
        syn::Item::Fn(i) => &i.attrs,
        syn::Item::Impl(i) => &i.attrs,
        syn::Item::Macro(i) => &i.attrs,
        syn::Item::Mod(i) => &i.attrs,
        syn::Item::Static(i) => &i.attrs,
        syn::Item::Struct(i) => &i.attrs,
        syn::Item::Trait(i) => &i.attrs,
        syn::Item::Type(i) => &i.attrs,
        syn::Item::Use(i) => &i.attrs,
        syn::Item::ExternCrate(i) => &i.attrs,
        _ => &[],
    }
}

fn marks_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text == "test" || text.starts_with("all (test") || text.starts_with("all(test")
        }
        meta => meta.path().is_ident("test"),
    })
}

fn is_test(item: &syn::Item) -> bool {
    marks_test(attributes(item))
}

fn span_lines(of: &impl syn::spanned::Spanned) -> (usize, usize) {
    let (LineColumn { line: first, .. }, LineColumn { line: last, .. }) =
        (of.span().start(), of.span().end());
    (first, last)
}

/// Facts about the tokens of a file, without doc comments.
#[derive(Debug, Default)]
struct Code {
    /// Lines with code.
    lines: BTreeSet<usize>,
    /// Lines with a string literal.
    literals: BTreeSet<usize>,
    /// Names of types and traits, with their lines.
    types: Vec<(String, usize)>,
}

impl Code {
    fn read(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            if let TokenTree::Punct(punct) = &token
                && punct.as_char() == '#'
            {
                // A doc comment becomes `#[doc = ..]` or `#![doc = ..]`.
                if let Some(TokenTree::Punct(inner)) = tokens.peek()
                    && inner.as_char() == '!'
                {
                    tokens.next();
                }
                if let Some(TokenTree::Group(group)) = tokens.peek()
                    && group.stream().into_iter().next().is_some_and(|first| first.to_string() == "doc")
                {
                    tokens.next();
                    continue;
                }
            }
            if let TokenTree::Ident(keyword) = &token
                && ["struct", "enum", "union", "trait"].iter().any(|known| keyword == known)
                && let Some(TokenTree::Ident(name)) = tokens.peek()
            {
                self.types.push((name.to_string(), name.span().start().line));
            }
            self.token(token);
        }
    }

    fn token(&mut self, token: TokenTree) {
        let (first, last) = (token.span().start().line, token.span().end().line);
        match token {
            TokenTree::Group(group) => {
                self.lines.extend([first, last]);
                self.read(group.stream());
            }
            TokenTree::Literal(literal) => {
                self.lines.extend(first..=last);
                if literal.to_string().contains('"') {
                    self.literals.extend(first..=last);
                }
            }
            _ => self.lines.extend([first]),
        }
    }
}

/// Collects the facts about a file, outside tests.
#[derive(Debug, Default)]
struct Reader {
    /// Module being read, from the target's root.
    at: Vec<String>,
    /// Length of the file's own module path.
    depth: usize,
    children: BTreeSet<String>,
    files: Vec<(String, Option<String>)>,
    functions: Vec<Function>,
    paths: BTreeSet<Vec<String>>,
    exports: Vec<(String, Vec<String>)>,
    /// First and last lines of tests.
    tests: Vec<(usize, usize)>,
}

impl Reader {
    /// A path from the target's root; `None` if it begins elsewhere.
    fn resolve(&self, path: &[String]) -> Option<Vec<String>> {
        let mut at = self.at.clone();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => at.clear(),
            Some("self") => {}
            Some("super") => drop(at.pop()),
            // A module that this file declares, named without `self`.
            Some(child) if at.len() == self.depth && self.children.contains(child) => {
                return Some(at.into_iter().chain(path.iter().cloned()).collect());
            }
            _ => return None,
        }
        rest = rest.get(1..)?;
        while let Some(("super", others)) = rest.split_first().map(|(first, others)| (first.as_str(), others))
        {
            at.pop();
            rest = others;
        }
        Some(at.into_iter().chain(rest.iter().cloned()).collect())
    }

    fn note(&mut self, path: &[String]) {
        self.paths.extend(self.resolve(path));
    }

    fn function(&mut self, signature: &syn::Signature, last: usize) {
        let first = signature.span().start().line;
        let typed = signature.inputs.iter().filter(|input| matches!(input, syn::FnArg::Typed(_)));
        self.functions.push(Function {
            name: signature.ident.to_string(),
            lines: last - first + 1,
            parameters: typed.count(),
        });
    }

    fn use_tree(&mut self, tree: &syn::UseTree, prefix: &[String], exported: bool) {
        let with = |ident: &syn::Ident| -> Vec<String> {
            // `self` in braces means the path before it.
            let more = (ident != "self" || prefix.is_empty()).then(|| ident.to_string());
            prefix.iter().cloned().chain(more).collect()
        };
        match tree {
            syn::UseTree::Path(path) => self.use_tree(&path.tree, &with(&path.ident), exported),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.use_tree(tree, prefix, exported));
            }
            syn::UseTree::Name(name) => self.used(&with(&name.ident), &name.ident, exported),
            syn::UseTree::Rename(name) => self.used(&with(&name.ident), &name.rename, exported),
            syn::UseTree::Glob(_) => self.note(prefix),
        }
    }

    fn used(&mut self, path: &[String], name: &syn::Ident, exported: bool) {
        let Some(path) = self.resolve(path) else { return };
        if self.at.len() == self.depth {
            self.exports.push((name.to_string(), path.clone()));
        }
        // The root's list of exports does not count as a use.
        if !(exported && self.at.is_empty()) {
            self.paths.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(item) {
            self.tests.push(span_lines(item));
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        let Some((_, items)) = &item.content else {
            let path = item.attrs.iter().find_map(|attribute| match &attribute.meta {
                syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                    syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
                    _ => None,
                },
                _ => None,
            });
            self.files.push((name, path));
            return;
        };
        self.at.push(name);
        items.iter().for_each(|item| self.visit_item(item));
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.use_tree(&item.tree, &[], exported);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, item.block.span().end().line);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if marks_test(&item.attrs) {
            self.tests.push(span_lines(item));
            return;
        }
        self.function(&item.sig, item.block.span().end().line);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.note(&names);
        }
        visit::visit_path(self, path);
    }

    // Of a macro's arguments, only `crate::` is read: the rest need not be Rust.
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.macro_paths(item.tokens.clone());
    }
}

impl Reader {
    fn macro_paths(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if ident == "crate" => path = vec!["crate".into()],
                TokenTree::Ident(ident) if !path.is_empty() && colons == 2 => path.push(ident.to_string()),
                TokenTree::Punct(punct) if !path.is_empty() && punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.note(&std::mem::take(&mut path));
                    if let TokenTree::Group(group) = other {
                        self.macro_paths(group.stream());
                    }
                }
            }
            colons = 0;
        }
        self.note(&path);
    }
}

/// A source for a test.
#[cfg(test)]
pub(crate) fn sample(module: &[&str], text: &str) -> Source {
    let module: Vec<String> = module.iter().map(|name| (*name).to_owned()).collect();
    let path = format!("src/{}.rs", if module.is_empty() { "lib".into() } else { module.join("/") });
    let target = "src/lib.rs".into();
    let mut source =
        Source { path, of: "nat".into(), target, module, text: text.into(), ..Source::default() };
    parse(&mut source).unwrap();
    source
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(source: &Source) -> Vec<String> {
        source.paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn imports_and_paths_are_resolved_from_the_targets_root() {
        let source = sample(
            &["pool4", "map"],
            "use crate::{bib::{self, Key}, time::Instant as Now};\nuse super::Pool;\nuse std::fmt;\n\
             fn f() { crate::rng::next(); self::g(); matches!(x, crate::step::Step::A) }\n",
        );
        assert_eq!(
            joined(&source),
            [
                "bib",
                "bib::Key",
                "pool4::Pool",
                "pool4::map::g",
                "rng::next",
                "step::Step::A",
                "time::Instant"
            ]
        );
    }

    #[test]
    fn an_export_of_the_root_is_no_use_and_an_import_is() {
        let source = sample(&[], "mod a;\nmod b;\npub use a::One;\nuse b::Two;\n");
        assert_eq!(joined(&source), ["b::Two"]);
        assert_eq!(source.exports.len(), 2);
    }

    #[test]
    fn tests_comments_and_blank_lines_do_not_count_as_code() {
        let text = "//! Header.\n\n/// Doc.\nfn f() {\n    // Why.\n    g();\n}\n\n#[cfg(test)]\nmod tests {\n    use crate::x::Y;\n    fn t() {}\n}\n";
        let source = sample(&["a"], text);
        assert_eq!(source.lines, 3);
        assert_eq!(joined(&source), [""; 0]);
        assert_eq!(source.functions, [Function { name: "f".into(), lines: 4, parameters: 0 }]);
    }

    #[test]
    fn parameters_are_counted_without_self() {
        let source = sample(&["a"], "impl A {\n    fn f(&self, a: u8, b: u8) {\n    }\n}\n");
        assert_eq!(source.functions, [Function { name: "f".into(), lines: 2, parameters: 2 }]);
    }
}
