// A CodeMirror for Python, with what is meant for this page: keys, labels, colours that follow the theme.
import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

// The colours are variables of live.css, so that one style serves both themes.
const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--live-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--live-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--live-number)" },
  { tag: tags.comment, color: "var(--live-comment)", fontStyle: "italic" },
  { tag: [tags.definition(tags.function(tags.variableName)), tags.meta], color: "var(--live-name)" },
]);

/**
 * Put an editor into an element.
 *
 * Tab indents only for someone who is writing: who comes by keyboard and goes on gets through. Escape and then
 * Tab leaves in any case, as CodeMirror has it.
 */
export function editor(parent, source, { label, run, changed }) {
  let writing = false;
  const indent = (command) => (view) => writing && command(view);
  return new EditorView({
    parent,
    state: EditorState.create({
      doc: source,
      extensions: [
        keymap.of([
          { key: "Ctrl-Enter", mac: "Cmd-Enter", run: () => (run(), true) },
          { key: "Ctrl-Enter", run: () => (run(), true) },
          { key: "Shift-Enter", run: () => (run(), true) }, // as notebooks say
          { key: "Tab", run: indent(indentMore), shift: indent(indentLess) },
          ...defaultKeymap,
          ...historyKeymap,
        ]),
        lineNumbers(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        indentUnit.of("    "),
        python(),
        syntaxHighlighting(colours),
        // The index says to tools what browsers know: that the keyboard reaches what scrolls.
        EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
        EditorView.domEventHandlers({
          mousedown: () => void (writing = true),
          blur: () => void (writing = false),
        }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          writing = true;
          changed(update.state.doc.toString());
        }),
      ],
    }),
  });
}

/** Put another text into an editor. */
export function replace(view, text) {
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
}
