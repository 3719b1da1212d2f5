import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import ts from 'typescript';

// From lib/test, where this file is compiled to.
const ROOT = join(__dirname, '../..');
const LIBRARY = join(ROOT, 'node_modules/@vendure/dashboard/src/lib');
const OPTIONS: ts.CompilerOptions = {
    strict: true,
    noEmit: true,
    jsx: ts.JsxEmit.ReactJSX,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    target: ts.ScriptTarget.ES2022,
    types: [],
    paths: { '@/vdb/*': [join(LIBRARY, '*')] },
};

/** What the compiler says of the component, and not of the dashboard, most of whose dependencies are not installed. */
function faults(change = (source: string) => source): string[] {
    const path = join(ROOT, 'dashboard/index.tsx');
    const host = ts.createCompilerHost(OPTIONS);
    const read = host.readFile.bind(host);
    host.readFile = name => {
        const text = read(name);
        return name === path && text !== undefined ? change(text) : text;
    };
    const program = ts.createProgram([path], OPTIONS, host);
    const file = program.getSourceFile(path);
    assert.ok(file);
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
        ({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'),
    );
}

test('the component of the notes fits the sources of the dashboard', () => {
    assert.deepEqual(faults(), []);
});

test('a component that does not fit is found', () => {
    const found = faults(source => source.replace('title=', 'heading=').replace('type:', 'kind:')).join('\n');
    assert.match(found, /'heading' does not exist/);
    assert.match(found, /'kind' does not exist/);
});
