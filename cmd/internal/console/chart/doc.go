// Package chart draws lines and bars as SVG, for pages whose policy allows no inline style:
// colours are classes, and so belong to the page's style sheet.
//
// What is drawn is stretched to the width that the page gives it, so there is no text in
// it: labels are the page's. Nothing but numbers, and class names of the program's own, gets
// into the markup.
package chart
