// This script solves the puzzle in the form, so that the next attempt is allowed.
const form = document.querySelector("form[data-puzzle]");
if (form) solve(form.dataset.puzzle, Number(form.dataset.zeros));

async function solve(puzzle, zeros) {
	const text = new TextEncoder();
	for (let i = 0; ; i++) {
		const hash = await crypto.subtle.digest("SHA-256", text.encode(`${puzzle}.${i}`));
		if (Math.clz32(new DataView(hash).getUint32(0)) < zeros) continue;
		form.elements.solution.value = i;
		document.getElementById("puzzle").textContent = "Puzzle solved: you can try again now.";
		return;
	}
}
